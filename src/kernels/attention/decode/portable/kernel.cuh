// Decode attention in any format, with any option, on any GPU: the kernel and its launcher.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/attention/decode/portable/warp.cuh"
#include "kernels/attention/last_block.cuh"
#include "kernels/launch.h"
#include "kernels/stream_scratch.h"

namespace tessera::kernels::decode_portable {

// One row of a block: the states of its warps folded in order.
template <int kRows>
class FoldedRow {
 public:
  __device__ FoldedRow(const DecodeStates<kRows>& states, int row) : states_(states), row_(row) {
    TESSERA_UNROLL
    for (int w = 0; w < kDecodeWarps; ++w) total_.max = fmaxf(total_.max, states.max[w][row]);
    TESSERA_UNROLL
    for (int w = 0; w < kDecodeWarps; ++w) {
      factors_[w] = state_factor(states.max[w][row], total_);
      total_.sum = fmaf(states.sum[w][row], factors_[w], total_.sum);
    }
  }
  __device__ const SoftmaxRow& total() const { return total_; }
  __device__ float value(int column) const {
    float sum = 0.0f;
    TESSERA_UNROLL
    for (int w = 0; w < kDecodeWarps; ++w) {
      sum = fmaf(states_.o[w][row_][column], factors_[w], sum);
    }
    return sum;
  }

 private:
  const DecodeStates<kRows>& states_;
  int row_;
  SoftmaxRow total_;
  float factors_[kDecodeWarps];
};

// The partial states of one tile's pieces in scratch memory.
class DecodePieces {
 public:
  __device__ DecodePieces(const DecodeParams& p, int tile, int most_pieces)
      : row_dim_(p.head_dim),
        num_rows_(p.rows.rows_per_tile),
        states_(p.states + int64_t{tile} * most_pieces * num_rows_ * 2),
        partials_(p.partials + int64_t{tile} * most_pieces * num_rows_ * row_dim_) {}

  __device__ float* state(int piece, int row) const {
    return states_ + (piece * num_rows_ + row) * 2;
  }
  __device__ float* partial(int piece, int row) const {
    return partials_ + (piece * num_rows_ + row) * row_dim_;
  }

 private:
  int row_dim_;
  int num_rows_;
  float* states_;
  float* partials_;
};

// One row of a tile: the states of its pieces folded in order. All lanes of a warp take part, each
// with every 32nd column.
class MergedRow {
  static constexpr int kColumns = kDecodeMostDim / 32;

 public:
  __device__ MergedRow(const DecodePieces& pieces, int num_pieces, int row, int head_dim) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    SoftmaxRow mine;
    if (lane < num_pieces) {
      mine.max = __ldcg(pieces.state(lane, row));
      mine.sum = __ldcg(pieces.state(lane, row) + 1);
    }
    total_.max = tile::warp_reduce<tile::Max>(mine.max);
    const float factor = state_factor(mine.max, total_);
    total_.sum = tile::warp_reduce<tile::Sum>(mine.sum * factor);
    TESSERA_UNROLL
    for (int c = 0; c < kColumns; ++c) values_[c] = 0.0f;
#pragma unroll 4
    for (int piece = 0; piece < num_pieces; ++piece) {
      const float* partial = pieces.partial(piece, row);
      const float its_factor = __shfl_sync(~0u, factor, piece);
      TESSERA_UNROLL
      for (int c = 0; c < kColumns; ++c) {
        const int column = lane + 32 * c;
        if (column < head_dim) {
          values_[c] = fmaf(__ldcg(partial + column), its_factor, values_[c]);
        }
      }
    }
  }
  __device__ const SoftmaxRow& total() const { return total_; }
  // Calls f(column, value) for this lane's columns.
  template <class F>
  __device__ void for_each_value(int head_dim, const F& f) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    TESSERA_UNROLL
    for (int c = 0; c < kColumns; ++c) {
      if (lane + 32 * c < head_dim) f(lane + 32 * c, values_[c]);
    }
  }

 private:
  SoftmaxRow total_;
  float values_[kColumns];
};

template <int kRows>
struct DecodeShared {
  struct Loop {
    DecodeQueries<kRows> queries;
    DecodeStepShared<kRows> steps[kDecodeWarps];
  };
  union {
    Loop loop;
    DecodeStates<kRows> states;  // once all warps have finished their keys
  };
  DecodeRow rows[kRows];
  bool is_last;
};

// The rows and keys of a block.
struct DecodeBlock {
  int tile;  // of the call
  int sequence;
  int kv_head;
  DecodeRowCut::Tile rows;
  int piece;

  __device__ explicit DecodeBlock(const DecodeParams& p)
      : tile(static_cast<int>(blockIdx.x)), piece(static_cast<int>(blockIdx.y)) {
    const int num_tiles = p.rows.num_tiles();
    rows = p.rows.tile(tile % num_tiles);
    kv_head = tile / num_tiles % p.num_kv_heads;
    sequence = tile / num_tiles / p.num_kv_heads;
  }
  __device__ int query(const DecodeParams& p, int row) const {
    return (rows.first + row) / p.rows.group;
  }
};

__device__ inline DecodeRow decode_row(const DecodeParams& p, const DecodeBlock& block,
                                       const DecodeKeys& keys, int row) {
  if (row >= block.rows.count) return {0, 0, -1, 0, 0.0f};
  const int query = block.query(p, row);
  const int head = block.kv_head * p.rows.group + (block.rows.first + row) % p.rows.group;
  DecodeRow result{query, head, keys.position(query), 0, 0.0f};
  if (p.tree != nullptr) {
    result.tree = static_cast<uint32_t>(p.tree[block.sequence * p.rows.q_len + query]);
  }
  if (p.scores.alibi_slopes != nullptr) result.slope = p.scores.alibi_slopes[head];
  return result;
}

// Loads rows and queries into shared memory.
template <class T, int kRows>
__device__ void load_tile(const DecodeParams& p, const DecodeBlock& block, const DecodeKeys& keys,
                          DecodeShared<kRows>& shared) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < kRows) shared.rows[thread] = decode_row(p, block, keys, thread);
  const int num_columns = decode_lanes(p.head_dim) * kChunk;
  for (int i = thread; i < kRows * num_columns; i += kDecodeThreads) {
    const int row = i / num_columns, column = i - row * num_columns;
    float value = 0.0f;
    if (row < block.rows.count && column < p.head_dim) {
      const int query = block.query(p, row);
      const int head = block.kv_head * p.rows.group + (block.rows.first + row) % p.rows.group;
      const T* q = static_cast<const T*>(p.q) + block.sequence * p.q_strides.batch +
                   query * p.q_strides.row + head * p.q_strides.head;
      value = tile::to_float(q[column]);
    }
    shared.loop.queries.set(row, column, value);
  }
}

// Normalises and stores a row; called by all lanes of a warp. for_each calls its argument with
// column and value.
template <class T, class ForEach>
__device__ void store_row(const DecodeParams& p, int sequence, const DecodeRow& row,
                          const SoftmaxRow& total, const ForEach& for_each) {
  const float sink = p.scores.sinks != nullptr ? p.scores.sinks[row.head] : -INFINITY;
  const RowEnd end = finish_row(total, kLog2e, sink);
  T* out = static_cast<T*>(p.out) + sequence * p.out_strides.batch + row.query * p.out_strides.row +
           row.head * p.out_strides.head;
  for_each([&](int column, float value) {
    out[column] = tile::from_float<T>(end.factor == 0.0f ? 0.0f : value * end.factor);
  });
  if (p.lse == nullptr || threadIdx.x % 32 != 0) return;
  p.lse[sequence * p.lse_strides.batch + row.query * p.lse_strides.row +
        row.head * p.lse_strides.head] = end.lse;
}

// Stores the block's result in out, or in scratch memory if there are other pieces.
template <class T, int kRows>
__device__ void fold_block(const DecodeParams& p, const DecodeBlock& block, int num_pieces,
                           const DecodePieces& pieces, const DecodeShared<kRows>& shared) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  for (int row = warp; row < block.rows.count; row += kDecodeWarps) {
    const FoldedRow<kRows> folded(shared.states, row);
    const auto for_each = [&](const auto& f) {
      for (int column = lane; column < p.head_dim; column += 32) f(column, folded.value(column));
    };
    if (num_pieces <= 1) {
      store_row<T>(p, block.sequence, shared.rows[row], folded.total(), for_each);
      continue;
    }
    float* partial = pieces.partial(block.piece, row);
    for_each([&](int column, float value) { partial[column] = value; });
    if (lane == 0) {
      pieces.state(block.piece, row)[0] = folded.total().max;
      pieces.state(block.piece, row)[1] = folded.total().sum;
    }
  }
}

template <class T, int kRows>
__device__ void merge_pieces(const DecodeParams& p, const DecodeBlock& block, int num_pieces,
                             const DecodePieces& pieces, const DecodeShared<kRows>& shared) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  for (int row = warp; row < block.rows.count; row += kDecodeWarps) {
    const MergedRow merged(pieces, num_pieces, row, p.head_dim);
    store_row<T>(p, block.sequence, shared.rows[row], merged.total(),
                 [&](const auto& f) { merged.for_each_value(p.head_dim, f); });
  }
}

// out = softmax(score(q . k)) . v for the newest tokens of every sequence over a KV cache.
//
// Work      grid = (tiles, pieces). A tile is a sequence, a KV head and up to kRows of the rows
//           that share it; a piece is a run of its keys, cut by the length of the sequence alone.
//           Four warps alternate over steps of 32 keys. 8, 16 or 32 lanes share a key, each with 8
//           of its elements, which are dequantised in registers exactly as the operation defines.
// Pipeline  A lane has four keys, then four values, in flight at once; other warps of the SM hide
//           the rest of the latency. Scores and weights of a step pass through shared memory within
//           a warp.
// Output    The states (m, l, o) of the warps are folded in order. If a tile has several pieces,
//           the last block to finish folds their states from scratch memory, in order: the result
//           does not depend on which block that is.
// Cost      Reads the keys and values that some row sees once per tile of rows; 4 d flop per row
//           and key, by fma. docs/kernels/decode.md
// Needs     head_dim up to 256.
template <class T, int kRows>
__global__ void __launch_bounds__(kDecodeThreads, kRows == 4 ? 3 : 2)
    attention_decode_kernel(const __grid_constant__ DecodeParams p) {
  __shared__ DecodeShared<kRows> shared;
  const DecodeBlock block(p);
  const DecodeKeys keys(p, block.sequence, block.query(p, 0), block.query(p, block.rows.count - 1));
  const DecodeKeyCut cut = keys.cut();
  if (block.piece >= max(1, cut.num_pieces)) return;
  load_tile<T>(p, block, keys, shared);
  __syncthreads();
  const int warp = static_cast<int>(threadIdx.x) / 32;
  {
    WarpDecode<T, kRows> rows(p, keys, shared.loop.queries, shared.rows, shared.loop.steps[warp],
                              block.sequence, block.kv_head);
    const int begin = cut.begin + block.piece * cut.piece_keys;
    const int end = min(cut.end, begin + cut.piece_keys);
    for (int first = begin + warp * kDecodeStepKeys; first < end;
         first += kDecodeWarps * kDecodeStepKeys) {
      rows.meet(first, end);
    }
    rows.finish();
    __syncthreads();  // states overwrite the queries
    rows.leave(shared.states, warp);
  }
  __syncthreads();
  const DecodePieces pieces(p, block.tile, static_cast<int>(gridDim.y));
  fold_block<T>(p, block, cut.num_pieces, pieces, shared);
  if (cut.num_pieces <= 1) return;
  if (!is_last_block(p.tickets + block.tile, cut.num_pieces, shared.is_last)) return;
  merge_pieces<T>(p, block, cut.num_pieces, pieces, shared);
}

template <class T, int kRows>
void launch_decode(const DecodeAttentionArgs& args, const Context& ctx) {
  if (args.q.num_elements() == 0) return;
  DecodeParams p = decode_params(args, kRows);
  const int64_t num_tiles = args.q.size(0) * p.num_kv_heads * p.rows.num_tiles();
  const int num_pieces = bound_pieces(most_keys(p), p.rows.most_pieces());
  const auto num_states = static_cast<size_t>(num_tiles * num_pieces * p.rows.rows_per_tile);
  const auto head_dim = static_cast<size_t>(p.head_dim);
  const bool has_scratch = num_pieces > 1;
  const StreamScratch scratch(
      args.q.device, ctx.stream,
      {.num_bytes = has_scratch ? num_states * (head_dim + 2) * sizeof(float) : 0,
       .num_tickets = has_scratch ? static_cast<size_t>(num_tiles) : 0});
  if (has_scratch) {
    p.partials = static_cast<float*>(scratch.data());
    p.states = p.partials + num_states * head_dim;
    p.tickets = scratch.tickets();
  }
  launch(&attention_decode_kernel<T, kRows>,
         {.grid = dim3(static_cast<unsigned>(num_tiles), static_cast<unsigned>(num_pieces)),
          .block = dim3(kDecodeThreads)},
         p, ctx);
}

}  // namespace tessera::kernels::decode_portable
