// Decode attention in any format, with any option, on any GPU: the kernel and how it is launched.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/attention/decode_portable/fold.cuh"
#include "kernels/attention/decode_portable/launch.h"
#include "kernels/attention/decode_portable/warp_rows.cuh"
#include "kernels/attention/last_block.cuh"
#include "kernels/launch.h"
#include "kernels/stream_scratch.h"
#include "kernels/with_constant.h"

namespace tessera::kernels {

template <int kRows>
struct DecodeShared {
  struct Loop {
    DecodeQueries<kRows> queries;
    DecodeStepShared<kRows> steps[kDecodeWarps];
  };
  union {
    Loop loop;
    DecodeStates<kRows> states;  // once all warps have met their keys
  };
  DecodeRow rows[kRows];
  bool is_last;
};

// Which rows and keys a block has.
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

// Rows and queries to shared memory.
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

// A finished row, of all lanes of a warp: for_each calls its argument with column and value.
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

// What this block's warps found goes to out, or where there are other pieces to scratch memory.
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
// that
//           share it; a piece is a run of its keys, cut by the length of the sequence alone. Four
//           warps take turns at steps of 32 keys. 8, 16 or 32 lanes share a key, each with 8
//           elements of it; what an element is worth is found out in registers, exactly as the
//           operation says.
// Pipeline  A lane has four keys, then four values, on their way at once; other warps of the SM
//           fill the gaps. Scores and weights of a step pass through shared memory within a warp.
// Output    Warps leave (maximum, sum, values) and are folded in order. Of several pieces the last
//           block to finish merges what all left in scratch memory, in order: the result does not
//           depend on which it was.
// Cost      The bytes of the keys and values that some row sees, once for each tile of rows; 4 d
//           flop for each row and key, by fma. docs/kernels/decode.md
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
    __syncthreads();  // the queries have been read, and the states come where they were
    rows.leave(shared.states, warp);
  }
  __syncthreads();
  const DecodePieces pieces(p, block.tile, static_cast<int>(gridDim.y));
  fold_block<T>(p, block, cut.num_pieces, pieces, shared);
  if (cut.num_pieces <= 1) return;
  if (!is_last_block(p.tickets + block.tile, cut.num_pieces, shared.is_last)) return;
  merge_pieces<T>(p, block, cut.num_pieces, pieces, shared);
}

template <class T>
void launch_attention_decode(const DecodeAttentionArgs& args, const Context& ctx) {
  if (args.q.num_elements() == 0) return;
  const int64_t num_rows = q_len_of(args) * group_of(args);
  with_constant<4, 8>(num_rows <= 4 ? 4 : 8, [&](auto rows) {
    DecodeParams p = decode_params(args, rows());
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
    launch(&attention_decode_kernel<T, rows()>,
           {.grid = dim3(static_cast<unsigned>(num_tiles), static_cast<unsigned>(num_pieces)),
            .block = dim3(kDecodeThreads)},
           p, ctx);
  });
}

}  // namespace tessera::kernels
