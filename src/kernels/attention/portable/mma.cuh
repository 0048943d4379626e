// Prefill attention on tensor cores by mma.sync: sm_80 up.
// SPDX-License-Identifier: MIT
#pragma once

#include <type_traits>

#include "kernels/attention/accept.h"
#include "kernels/attention/portable/launch.h"
#include "kernels/attention/portable/padded.cuh"
#include "kernels/attention/portable/warp_rows.cuh"
#include "kernels/attention/portable/work.cuh"
#include "kernels/launch.h"
#include "kernels/with_constant.h"
#include "tile/ptx/address.cuh"

namespace tessera::kernels {

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

  // Of all threads; one barrier later all may read it.
  __device__ void note(const AttentionParams& p, const QueryTile& tile, int head) {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int first_row = warp * kTile.warp_rows();
    warp_keys[warp] = tile_keys(p.mask, tile.sequence, tile.query(first_row),
                                tile.query(first_row + kTile.warp_rows() - 1));
    if (warp == 0) work.note(p, tile, head);
  }
  // Starts the copies of a block of keys, those that `seen` has a bit for.
  __device__ void fetch(const ParamsOf<Tile>& p, int block, uint64_t seen, int slot) {
    const int first = block_range<kTile.keys>(block).begin;
    fetch_keys<Keys, kTile.keys, kTile.num_threads()>(
        work.k_rows, tile::ptx::shared_address(stages[slot].k), first, seen, key_head(p));
    fetch_keys<Values, kTile.keys, kTile.num_threads()>(
        work.v_rows, tile::ptx::shared_address(stages[slot].v), first, seen, value_head(p));
  }
};

// Keys that a row does not see get minus infinity.
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

// One block of keys: from Q, K and V in shared memory to the sums in registers.
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

// Normalised rows to shared memory and from there, 16 bytes a lane, to out. A warp's rows are its
// own affair.
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
//           A block owns kTile.rows queries of one head, a warp 16 or 32 of them: its scores, the
//           softmax and the sum of weighted values never leave its registers.
// Pipeline  Two stages of K and V. While a block of keys is multiplied, the one to its left is on
//           its way by cp.async; one barrier a block says both that it has landed and that the
//           stage to be filled has been read. Weights are made 16 keys at a time, between the
//           products of V that use those before.
// Output    Blocks of keys begin at multiples of kTile.keys and are met from right to left. A block
//           that a row does not see changes no bit of it, so a row is the same in any tile. Rows
//           leave through shared memory by 16 bytes a lane.
// Cost      4 q_len kv_len d flop a head, and as many exponentials as scores: the tensor cores are
//           the limit, then shared memory. docs/kernels/attention_portable.md
// Needs     Rows of q, k, v and out aligned to 16 bytes, of padded tiles to 4; a page of a power of
//           two rows.
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

  // With its own rule a score arrives in natural units.
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
  tile::ptx::cp_async_wait_group<0>();  // Q, if it met no key
  __syncthreads();                      // every warp has read Q, over which out is laid
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

template <class T, int kDk, int kDv>
void launch_attention_mma(const AttentionArgs& args, const Context& ctx) {
  if (args.q.num_elements() == 0) return;
  with_constant<true, false>(changes_scores(args), [&](auto is_general) {
    launch_mma_tile<T, MmaAttention<kDk, kDv, is_general()>, is_general()>(attention_params(args),
                                                                           ctx);
  });
}

template <class T, int kD>
void launch_attention_mma_padded(const AttentionArgs& args, const Context& ctx) {
  if (args.q.num_elements() == 0) return;
  launch_mma_tile<T, PaddedMmaAttention<kD>, true>(padded_params(args), ctx);
}

}  // namespace tessera::kernels
