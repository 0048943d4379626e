// Prefill attention on tensor cores by mma.sync, from sm_80 up: the kernel and its launcher.
// SPDX-License-Identifier: MIT
#pragma once

#include <type_traits>

#include "kernels/attention/prefill/portable/launch.h"
#include "kernels/attention/prefill/portable/load.cuh"
#include "kernels/attention/prefill/portable/tile.h"
#include "kernels/attention/prefill/portable/work.cuh"
#include "kernels/attention/scores.cuh"
#include "kernels/attention/softmax.cuh"
#include "kernels/launch.h"
#include "tile/ptx/address.cuh"
#include "tile/ptx/ldmatrix.cuh"
#include "tile/ptx/mma.cuh"

namespace tessera::kernels::prefill_portable {

// A warp's rows of a tile: S = Q K^T, the softmax, O += P V, all in registers.
//
// A thread holds rows lane / 4 and lane / 4 + 8 of each block of 16 rows, and two neighbouring
// columns of each block of 8 (tile/fragment.cuh). So four lanes share a row.
template <class T, class Tile>
class WarpRows {
  static constexpr MmaAttentionTile kTile = Tile::kShape;
  static constexpr int kM = kTile.warp_rows() / 16;
  static constexpr int kN = kTile.keys / 8;
  static constexpr int kV = kTile.d_v / 8;
  static constexpr int kStepsQk = kTile.d_k / 16;
  static constexpr int kStepsPv = kTile.keys / 16;
  using Queries = Slabs<kTile.rows, kTile.d_k>;
  using Keys = Slabs<kTile.keys, kTile.d_k>;
  using Values = Slabs<kTile.keys, kTile.d_v>;
  using Out = Slabs<kTile.rows, kTile.d_v>;

 public:
  using Scores = float[kM][kN][4];

  // `q` is the shared address of the tile's queries.
  __device__ explicit WarpRows(uint32_t q) {
    const tile::MatrixRow a = tile::matrix_row_16x32(lane());
    const tile::MatrixRow b = tile::matrix_row_two_8x32(lane());
    q_tile_ = q;
    q_offset_ = Queries::at(first_row() + a.row, a.byte);
    k_offset_ = Keys::at(b.row, b.byte);
    v_offset_ = Values::at(a.row, a.byte);
  }

  // This thread's row `half` of block `i` of 16 rows, within the tile.
  __device__ int row(int i, int half) const { return first_row() + 16 * i + 8 * half + lane() / 4; }
  // The first of this thread's two columns of block `j` of 8.
  __device__ int column(int j) const { return 8 * j + 2 * (lane() % 4); }

  // Once Q is in shared memory.
  __device__ void hold_q() {
    if constexpr (kTile.holds_q) {
      TESSERA_UNROLL
      for (int step = 0; step < kStepsQk; ++step) load_q(step, held_q_[step]);
    }
  }

  // S = Q K^T with K at this shared address. The next fragments are loaded while the current ones
  // are multiplied.
  __device__ void multiply_qk(uint32_t k, Scores& s) const {
    TESSERA_UNROLL
    for (int i = 0; i < kM; ++i) {
      TESSERA_UNROLL
      for (int j = 0; j < kN; ++j) {
        TESSERA_UNROLL
        for (int e = 0; e < 4; ++e) s[i][j][e] = 0.0f;
      }
    }
    constexpr int kLoads = kStepsQk * kN / 2;
    uint32_t a[2][kM][4];
    uint32_t b[2][4];
    if constexpr (!kTile.holds_q) load_q(0, a[0]);
    load_k(k, 0, b[0]);
    TESSERA_UNROLL
    for (int load = 0; load < kLoads; ++load) {
      const int step = load / (kN / 2);
      const int j = load % (kN / 2);
      if (load + 1 < kLoads) load_k(k, load + 1, b[(load + 1) % 2]);
      if constexpr (kTile.holds_q) {
        multiply_pair(held_q_[step], b[load % 2], s, j);
      } else {
        if (j == 0 && step + 1 < kStepsQk) load_q(step + 1, a[(step + 1) % 2]);
        multiply_pair(a[step % 2], b[load % 2], s, j);
      }
    }
  }

  // Updates the maxima with a block of scores, and rescales the sums where a maximum has grown. A
  // factor of exactly 1 changes no bit, so a warp without growth skips it.
  __device__ void raise(const Scores& s, float scale) {
    float shrink[kM][2];
    bool has_grown = false;
    TESSERA_UNROLL
    for (int i = 0; i < kM; ++i) {
      TESSERA_UNROLL
      for (int half = 0; half < 2; ++half) {
        float largest = fmaxf(s[i][0][2 * half], s[i][0][2 * half + 1]);
        TESSERA_UNROLL
        for (int j = 1; j < kN; ++j) {
          largest = fmaxf(largest, fmaxf(s[i][j][2 * half], s[i][j][2 * half + 1]));
        }
        largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 1));
        largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 2));
        has_grown |= largest > softmax_[i][half].max;
        shrink[i][half] = softmax_[i][half].raise(largest, scale);
      }
    }
    if (!__any_sync(~0u, has_grown)) return;
    TESSERA_UNROLL
    for (int i = 0; i < kM; ++i) {
      TESSERA_UNROLL
      for (int j = 0; j < kV; ++j) {
        TESSERA_UNROLL
        for (int e = 0; e < 4; ++e) o_[i][j][e] *= shrink[i][e / 2];
      }
    }
  }

  // O += P V with V at this shared address, 16 keys at a time: scores become weights, which are
  // summed, passed through `drop`, rounded to T and multiplied.
  template <class Drop>
  __device__ void multiply_pv(uint32_t v, Scores& s, float scale, Drop drop) {
    constexpr int kLoads = kStepsPv * kV / 2;
    uint32_t a[kM][4];
    uint32_t b[2][4];
    load_v(v, 0, b[0]);
    TESSERA_UNROLL
    for (int load = 0; load < kLoads; ++load) {
      const int step = load / (kV / 2);
      const int j = load % (kV / 2);
      if (load + 1 < kLoads) load_v(v, load + 1, b[(load + 1) % 2]);
      if (j == 0) take_weights(s, step, scale, drop, a);
      multiply_pair(a, b[load % 2], o_, j);
    }
  }

  // Sums a row over its lanes and normalises it.
  __device__ RowEnd finish(int i, int half, float scale, float sink) const {
    SoftmaxRow total = softmax_[i][half];
    total.sum += __shfl_xor_sync(~0u, total.sum, 1);
    total.sum += __shfl_xor_sync(~0u, total.sum, 2);
    return finish_row(total, scale, sink);
  }

  // Rounded rows of out into the tile at `target` in shared memory.
  __device__ void stage(unsigned char* target, int i, int half, float factor) const {
    TESSERA_UNROLL
    for (int j = 0; j < kV; ++j) {
      const float* pair = &o_[i][j][2 * half];
      const uint32_t at = Out::at(row(i, half), 4 * (lane() % 4));
      // A block of 8 columns is a chunk of 16 bytes, half a step.
      const uint32_t place = Out::at_step(at, j / 2) ^ static_cast<uint32_t>(j % 2 * 16);
      *reinterpret_cast<uint32_t*>(target + place) =
          tile::pack_pair<T>(pair[0] * factor, pair[1] * factor);
    }
  }

 private:
  static constexpr int kHeldSteps = kTile.holds_q ? kStepsQk : 1;

  // Computed again each time, to save registers.
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  __device__ static int first_row() {
    return static_cast<int>(threadIdx.x) / 32 * kTile.warp_rows();
  }

  __device__ void load_q(int step, uint32_t (&a)[kM][4]) const {
    TESSERA_UNROLL
    for (int i = 0; i < kM; ++i) {
      tile::ptx::ldmatrix(
          a[i], q_tile_ + Queries::at_step(q_offset_, step) + 16 * i * Queries::kRowBytes);
    }
  }
  // 16 keys by one step of d_k.
  __device__ void load_k(uint32_t k, int load, uint32_t (&b)[4]) const {
    const int step = load / (kN / 2);
    const int j = load % (kN / 2);
    tile::ptx::ldmatrix(b, k + Keys::at_step(k_offset_, step) + 16 * j * Keys::kRowBytes);
  }
  // 16 keys by 16 columns of d_v, transposed.
  __device__ void load_v(uint32_t v, int load, uint32_t (&b)[4]) const {
    const int step = load / (kV / 2);
    const int j = load % (kV / 2);
    tile::ptx::ldmatrix_trans(b, v + Values::at_step(v_offset_, j) + 16 * step * Values::kRowBytes);
  }

  // One step of all rows against 16 columns.
  template <int kColumns>
  __device__ static void multiply_pair(const uint32_t (&a)[kM][4], const uint32_t (&b)[4],
                                       float (&d)[kM][kColumns][4], int j) {
    TESSERA_UNROLL
    for (int half = 0; half < 2; ++half) {
      const uint32_t column[2] = {b[2 * half], b[2 * half + 1]};
      TESSERA_UNROLL
      for (int i = 0; i < kM; ++i) tile::ptx::mma<T>(d[i][2 * j + half], a[i], column);
    }
  }

  template <class Drop>
  __device__ void take_weights(Scores& s, int step, float scale, Drop drop, uint32_t (&a)[kM][4]) {
    TESSERA_UNROLL
    for (int i = 0; i < kM; ++i) {
      TESSERA_UNROLL
      for (int reg = 0; reg < 4; ++reg) {  // tile::a_fragment_coord: rows, then columns
        const int half = reg % 2;
        const int j = 2 * step + reg / 2;
        SoftmaxRow& row = softmax_[i][half];
        float* pair = &s[i][j][2 * half];
        const float offset = row.offset(scale);
        pair[0] = softmax_weight(pair[0], scale, offset);
        pair[1] = softmax_weight(pair[1], scale, offset);
        row.sum += pair[0];
        row.sum += pair[1];
        drop(i, half, j, pair[0], pair[1]);
        a[i][reg] = tile::pack_pair<T>(pair[0], pair[1]);
      }
    }
  }

  uint32_t q_tile_;
  uint32_t q_offset_;  // of this lane's first ldmatrix row in its tile
  uint32_t k_offset_;
  uint32_t v_offset_;
  uint32_t held_q_[kHeldSteps][kM][4];
  SoftmaxRow softmax_[kM][2];
  float o_[kM][kV][4] = {};
};

template <class T, class Tile>
struct MmaAttentionShared {
  static constexpr MmaAttentionTile kTile = Tile::kShape;
  using Queries = Slabs<kTile.rows, kTile.d_k>;
  using Keys = Slabs<kTile.keys, kTile.d_k>;
  using Values = Slabs<kTile.keys, kTile.d_v>;
  using Out = Slabs<kTile.rows, kTile.d_v>;

  struct Stage {
    alignas(128) unsigned char k[Keys::kBytes];
    alignas(128) unsigned char v[Values::kBytes];
  };
  union {
    alignas(128) unsigned char q[Queries::kBytes];
    alignas(128) unsigned char out[Out::kBytes];
  };
  Stage stages[2];
  AttentionWork<T, kTile.keys> work;
  TileKeys warp_keys[kTile.num_warps];

  // Called by all threads; readable after one barrier.
  __device__ void note(const AttentionParams& p, const QueryTile& tile, int head) {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int first_row = warp * kTile.warp_rows();
    warp_keys[warp] = tile_keys(p.mask, tile.sequence, tile.query(first_row),
                                tile.query(first_row + kTile.warp_rows() - 1));
    if (warp == 0) work.note(p, tile, head);
  }
  // Starts to copy the keys and values of a block whose bits are set in `seen`.
  __device__ void fetch(const ParamsOf<Tile>& p, int block, uint64_t seen, int slot) {
    const int first = block_range<kTile.keys>(block).begin;
    fetch_keys<Keys, kTile.keys, kTile.num_threads()>(
        work.k_rows, tile::ptx::shared_address(stages[slot].k), first, seen, key_head(p));
    fetch_keys<Values, kTile.keys, kTile.num_threads()>(
        work.v_rows, tile::ptx::shared_address(stages[slot].v), first, seen, value_head(p));
  }
};

// Scores of keys that a row does not see become minus infinity.
template <class Work, class Rows>
__device__ void mask_scores(const AttentionParams& p, const Work& work, const Rows& rows,
                            int first_key, typename Rows::Scores& s) {
  constexpr int kM = std::extent_v<typename Rows::Scores, 0>;
  constexpr int kN = std::extent_v<typename Rows::Scores, 1>;
  TESSERA_UNROLL
  for (int i = 0; i < kM; ++i) {
    TESSERA_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int query = work.tile.query(rows.row(i, half));
      RowKeys seen = row_keys(p.mask, work.tile.sequence, query);
      // Counted from this thread's first column, so that the columns are constants.
      TESSERA_UNROLL
      for (KeyRange& range : seen.ranges) {
        range.begin -= first_key + rows.column(0);
        range.end -= first_key + rows.column(0);
      }
      TESSERA_UNROLL
      for (int j = 0; j < kN; ++j) {
        TESSERA_UNROLL
        for (int e = 0; e < 2; ++e) {
          if (!seen.has(8 * j + e)) s[i][j][2 * half + e] = -INFINITY;
        }
      }
    }
  }
}

template <class T, class Work, class Rows>
__device__ void apply_score_rule(const ScoreRule<T>& rule, const Work& work, const Rows& rows,
                                 int first_key, typename Rows::Scores& s) {
  constexpr int kM = std::extent_v<typename Rows::Scores, 0>;
  constexpr int kN = std::extent_v<typename Rows::Scores, 1>;
  TESSERA_UNROLL
  for (int i = 0; i < kM; ++i) {
    TESSERA_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int distance = work.position(rows.row(i, half)) - first_key - rows.column(0);
      TESSERA_UNROLL
      for (int j = 0; j < kN; ++j) {
        TESSERA_UNROLL
        for (int e = 0; e < 2; ++e) {
          float& score = s[i][j][2 * half + e];
          score = rule(score, distance - 8 * j - e);
        }
      }
    }
  }
}

// Processes one block of keys, from Q, K and V in shared memory to the sums in registers.
template <class T, bool kGeneral, class Work, class Stage, class Rows>
__device__ void meet_block(const AttentionParams& p, const Work& work, const Stage& stage,
                           int first_key, BlockKind kind, float scale, Rows& rows) {
  typename Rows::Scores s;
  rows.multiply_qk(tile::ptx::shared_address(stage.k), s);
  if constexpr (kGeneral) {
    apply_score_rule(ScoreRule<T>(p.scores, work.head), work, rows, first_key, s);
  }
  if (kind == BlockKind::mixed) mask_scores(p, work, rows, first_key, s);
  rows.raise(s, scale);
  const uint32_t v = tile::ptx::shared_address(stage.v);
  if constexpr (kGeneral) {
    const DropoutRule dropout(p.scores, work.head, work.tile.sequence.index);
    rows.multiply_pv(v, s, scale, [&](int i, int half, int j, float& first, float& second) {
      if (dropout.drop_below == 0) return;
      dropout.apply_to_pair(work.position(rows.row(i, half)), first_key + rows.column(j), first,
                            second);
    });
  } else {
    rows.multiply_pv(v, s, scale, [](int, int, int, float&, float&) {});
  }
}

// Stores normalised rows to shared memory and from there, 16 bytes per lane, to out. Each warp
// handles its own rows.
template <class T, bool kGeneral, class Tile, class Work, class Rows>
__device__ void finish(const ParamsOf<Tile>& p, const Work& work, unsigned char* staged,
                       float scale, const Rows& rows) {
  constexpr MmaAttentionTile kTile = Tile::kShape;
  using Out = Slabs<kTile.rows, kTile.d_v>;
  constexpr int kRowsAtOnce = 32 / Out::kSegmentChunks;
  const Sequence& s = work.tile.sequence;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const float sink = p.scores.sinks != nullptr ? p.scores.sinks[work.head] : -INFINITY;
  float* lse = head_of(p.lse, p.lse_strides, s, work.head);
  TESSERA_UNROLL
  for (int i = 0; i < kTile.warp_rows() / 16; ++i) {
    TESSERA_UNROLL
    for (int half = 0; half < 2; ++half) {
      const RowEnd end = rows.finish(i, half, scale, sink);
      const int query = work.tile.first + rows.row(i, half);
      if (p.lse != nullptr && lane % 4 == 0 && query <= work.tile.last) {
        lse[query * p.lse_strides.row] = end.lse;
      }
      rows.stage(staged, i, half, kGeneral ? end.factor * p.scores.keep_scale : end.factor);
    }
  }
  __syncwarp();
  T* out = head_of(static_cast<T*>(p.out), p.out_strides, s, work.head);
  const int first_row = static_cast<int>(threadIdx.x) / 32 * kTile.warp_rows();
  const int chunk = lane % Out::kSegmentChunks;
  TESSERA_UNROLL
  for (int pass = 0; pass < kTile.warp_rows() / kRowsAtOnce; ++pass) {
    const int row = first_row + pass * kRowsAtOnce + lane / Out::kSegmentChunks;
    const int query = work.tile.first + row;
    if (query > work.tile.last) continue;
    T* to = out + query * p.out_strides.row + 8 * chunk;
    TESSERA_UNROLL
    for (int segment = 0; segment < Out::kNumSegments; ++segment) {
      const unsigned char* from = staged + Out::at(row, 16 * chunk) + segment * Out::kSegmentBytes;
      store_columns(value_head(p), to + segment * Out::kSpan / 2,
                    8 * chunk + segment * Out::kSpan / 2, *reinterpret_cast<const uint4*>(from));
    }
  }
}

// out = softmax(scale * Q K^T + mask) V for one tile of queries, by mma.sync m16n8k16 with float
// accumulation: FlashAttention-2's forward pass.
//
// Work      grid = (tiles of queries, num_heads, batch); ragged: (a bound of all tiles, num_heads).
//           A block owns kTile.rows queries of one head, a warp 16 or 32 of them; scores, softmax
//           and sums of weighted values stay in the warp's registers.
// Pipeline  Two stages of K and V. While a block of keys is multiplied, the one to its left is in
//           flight by cp.async; one barrier per block tells both that it has arrived and that the
//           stage to be filled has been read. Weights are computed 16 keys at a time, between the
//           products of V that use the previous ones.
// Output    Blocks of keys begin at multiples of kTile.keys and are processed from right to left. A
//           block that a row does not see changes no bit of it, so a row is the same in any tile.
//           Rows are stored through shared memory, 16 bytes per lane.
// Cost      4 q_len kv_len d flop per head, and one exponential per score: the tensor cores are the
//           limit, then shared memory. docs/kernels/attention_portable.md
// Needs     rows of q, k, v and out aligned to 16 bytes, in padded tiles to 4; pages of a power of
//           two of rows.
template <class T, class Tile, bool kGeneral>
__global__ void __launch_bounds__(Tile::kShape.num_threads(), Tile::kShape.min_blocks)
    attention_mma_kernel(const __grid_constant__ ParamsOf<Tile> p) {
  constexpr MmaAttentionTile kTile = Tile::kShape;
  using Shared = MmaAttentionShared<T, Tile>;
  static_assert(sizeof(Shared) <= kMostSharedBytes);
  extern __shared__ __align__(128) unsigned char dynamic[];
  Shared& shared = *reinterpret_cast<Shared*>(dynamic);
  const int thread = static_cast<int>(threadIdx.x);
  const uint32_t q = tile::ptx::shared_address(shared.q);
  {
    const int head = static_cast<int>(blockIdx.y);
    const QueryTile tile = find_tile(p, kTile.rows);
    if (tile.last < tile.first) return;
    fetch_queries<typename Shared::Queries, kTile.rows, kTile.num_threads()>(
        query_rows<T>(p, tile.sequence, head), q, tile.first, tile.last, key_head(p));
    shared.note(p, tile, head);
  }
  __syncthreads();
  int block = shared.work.blocks.last;
  if (block >= 0) shared.fetch(p, block, shared.work.seen(p.mask, block), 0);
  tile::ptx::cp_async_commit_group();

  // In general instances ScoreRule has applied the scale already.
  const float scale = (kGeneral ? 1.0f : p.scores.scale) * kLog2e;
  WarpRows<T, Tile> rows(q);
  if constexpr (kTile.holds_q) {
    tile::ptx::cp_async_wait_group<0>();
    __syncthreads();
    rows.hold_q();
  }
  for (int slot = 0; block >= 0; slot ^= 1) {
    const KeyRange range = block_range<kTile.keys>(block);
    const BlockKind kind = shared.warp_keys[thread / 32].kind(range);
    const int next = shared.work.block_after(p.mask, block);
    const uint64_t seen = next >= 0 ? shared.work.seen(p.mask, next) : 0;
    tile::ptx::cp_async_wait_group<0>();
    __syncthreads();
    if (next >= 0) shared.fetch(p, next, seen, slot ^ 1);
    tile::ptx::cp_async_commit_group();
    if (kind != BlockKind::empty) {
      meet_block<T, kGeneral>(p, shared.work, shared.stages[slot], range.begin, kind, scale, rows);
    }
    block = next;
  }
  tile::ptx::cp_async_wait_group<0>();  // Q, if there was no key
  __syncthreads();                      // every warp has read Q, which out overwrites
  finish<T, kGeneral, Tile>(p, shared.work, shared.out, scale, rows);
}

template <class T, class Tile, bool kGeneral>
void launch_mma_tile(const ParamsOf<Tile>& p, const Context& ctx) {
  launch(&attention_mma_kernel<T, Tile, kGeneral>,
         {.grid = attention_grid(p, Tile::kShape.rows),
          .block = dim3(Tile::kShape.num_threads()),
          .shared_bytes = sizeof(MmaAttentionShared<T, Tile>)},
         p, ctx);
}

template <class T, int kDk, int kDv, bool kIsGeneral>
void launch_mma(const AttentionArgs& args, const Context& ctx) {
  if (args.q.num_elements() == 0) return;
  launch_mma_tile<T, MmaAttention<kDk, kDv, kIsGeneral>, kIsGeneral>(attention_params(args), ctx);
}

template <class T, int kD>
void launch_mma_padded(const AttentionArgs& args, const Context& ctx) {
  if (args.q.num_elements() == 0) return;
  launch_mma_tile<T, PaddedMmaAttention<kD>, true>(padded_params(args), ctx);
}

}  // namespace tessera::kernels::prefill_portable
