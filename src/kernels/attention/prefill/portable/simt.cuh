// Prefill attention of f32 on CUDA cores: the kernel and its launcher.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/attention/prefill/portable/launch.h"
#include "kernels/attention/prefill/portable/load.cuh"
#include "kernels/attention/prefill/portable/tile.h"
#include "kernels/attention/prefill/portable/work.cuh"
#include "kernels/attention/scores.cuh"
#include "kernels/attention/softmax.cuh"
#include "kernels/launch.h"
#include "tile/ptx/address.cuh"

namespace tessera::kernels::prefill_portable {

template <class Tile>
struct SimtAttentionShared {
  static constexpr SimtAttentionTile kTile = Tile::kShape;
  using Queries = PaddedRows<kTile.rows, kTile.d_k, kTile.kPad>;
  using Keys = PaddedRows<kTile.keys, kTile.d_k, kTile.kPad>;
  using Values = PaddedRows<kTile.keys, kTile.d_v, 0>;

  alignas(128) float q[kTile.rows][kTile.d_k + kTile.kPad];
  alignas(128) float k[kTile.keys][kTile.d_k + kTile.kPad];
  alignas(128) float v[kTile.keys][kTile.d_v];
  alignas(128) float weights[kTile.rows][kTile.keys + kTile.kPad];
  AttentionWork<float, kTile.keys> work;

  __device__ void fetch_k(const ParamsOf<Tile>& p, int block) {
    fetch_keys<Keys, kTile.keys, kTile.kThreads>(work.k_rows, tile::ptx::shared_address(k),
                                                 block_range<kTile.keys>(block).begin,
                                                 work.seen(p.mask, block), key_head(p));
  }
  __device__ void fetch_v(const ParamsOf<Tile>& p, int block) {
    fetch_keys<Values, kTile.keys, kTile.kThreads>(work.v_rows, tile::ptx::shared_address(v),
                                                   block_range<kTile.keys>(block).begin,
                                                   work.seen(p.mask, block), value_head(p));
  }
};

__device__ __forceinline__ float dot(float4 a, float4 b, float sum) {
  sum = fmaf(a.x, b.x, sum);
  sum = fmaf(a.y, b.y, sum);
  sum = fmaf(a.z, b.z, sum);
  return fmaf(a.w, b.w, sum);
}

// A thread's part of a tile. Thread (m, n) of 8 x 16 has rows m + 8 i, keys n + 16 j and the n-th
// of every 16 vectors of values. Half a warp shares its rows.
template <class Tile>
class ThreadRows {
  static constexpr SimtAttentionTile kTile = Tile::kShape;
  static constexpr int kRows = kTile.thread_rows();
  static constexpr int kKeys = kTile.thread_keys();
  static constexpr int kValues = kTile.thread_values();
  static constexpr int kVector = kTile.vector();
  using Shared = SimtAttentionShared<Tile>;

 public:
  __device__ explicit ThreadRows(int thread)
      : m_(thread / kTile.kThreadsN), n_(thread % kTile.kThreadsN) {}

  __device__ int row(int i) const { return m_ + kTile.kThreadsM * i; }
  __device__ int key(int j) const { return n_ + kTile.kThreadsN * j; }

  // S = Q K^T.
  __device__ void multiply_qk(const Shared& shared) {
    TESSERA_UNROLL
    for (int i = 0; i < kRows; ++i) {
      TESSERA_UNROLL
      for (int j = 0; j < kKeys; ++j) s_[i][j] = 0.0f;
    }
    for (int d = 0; d < kTile.d_k; d += 4) {
      float4 k[kKeys];
      TESSERA_UNROLL
      for (int j = 0; j < kKeys; ++j) k[j] = quad(&shared.k[key(j)][d]);
      TESSERA_UNROLL
      for (int i = 0; i < kRows; ++i) {
        const float4 q = quad(&shared.q[row(i)][d]);
        TESSERA_UNROLL
        for (int j = 0; j < kKeys; ++j) s_[i][j] = dot(q, k[j], s_[i][j]);
      }
    }
  }

  // Calls f(score, row, key) for this thread's scores; row and key count from the tile's first.
  template <class F>
  __device__ void for_each_score(F f) {
    TESSERA_UNROLL
    for (int i = 0; i < kRows; ++i) {
      TESSERA_UNROLL
      for (int j = 0; j < kKeys; ++j) f(s_[i][j], row(i), key(j));
    }
  }

  // Turns scores into weights, and rescales the sums where a maximum has grown.
  __device__ void take_weights(float scale) {
    TESSERA_UNROLL
    for (int i = 0; i < kRows; ++i) {
      float largest = s_[i][0];
      TESSERA_UNROLL
      for (int j = 1; j < kKeys; ++j) largest = fmaxf(largest, s_[i][j]);
      TESSERA_UNROLL
      for (int lane = kTile.kThreadsN / 2; lane > 0; lane /= 2) {
        largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, lane));
      }
      const float shrink = softmax_[i].raise(largest, scale);
      const float offset = softmax_[i].offset(scale);
      TESSERA_UNROLL
      for (int j = 0; j < kKeys; ++j) {
        s_[i][j] = softmax_weight(s_[i][j], scale, offset);
        softmax_[i].sum += s_[i][j];
      }
      TESSERA_UNROLL
      for (int c = 0; c < kValues; ++c) o_[i][c] *= shrink;
    }
  }

  // Stores weights in shared memory, for the other lanes of this half warp.
  __device__ void share_weights(Shared& shared) const {
    __syncwarp();  // the previous block's weights have been read
    TESSERA_UNROLL
    for (int i = 0; i < kRows; ++i) {
      TESSERA_UNROLL
      for (int j = 0; j < kKeys; ++j) shared.weights[row(i)][key(j)] = s_[i][j];
    }
    __syncwarp();
  }

  // O += P V.
  __device__ void multiply_pv(const Shared& shared) {
    for (int key = 0; key < kTile.keys; key += 4) {
      float weights[kRows][4];
      TESSERA_UNROLL
      for (int i = 0; i < kRows; ++i) {
        *reinterpret_cast<float4*>(weights[i]) = quad(&shared.weights[row(i)][key]);
      }
      TESSERA_UNROLL
      for (int e = 0; e < 4; ++e) {
        float v[kValues];
        TESSERA_UNROLL
        for (int c = 0; c < kValues; c += kVector) {
          load_vector(&shared.v[key + e][column(c)], &v[c]);
        }
        TESSERA_UNROLL
        for (int i = 0; i < kRows; ++i) {
          TESSERA_UNROLL
          for (int c = 0; c < kValues; ++c) o_[i][c] = fmaf(weights[i][e], v[c], o_[i][c]);
        }
      }
    }
  }

  __device__ RowEnd finish(int i, float scale, float sink) const {
    SoftmaxRow total = softmax_[i];
    TESSERA_UNROLL
    for (int lane = kTile.kThreadsN / 2; lane > 0; lane /= 2) {
      total.sum += __shfl_xor_sync(~0u, total.sum, lane);
    }
    return finish_row(total, scale, sink);
  }
  template <class Head>
  __device__ void store(const Head& head, int i, float factor, float* out) const {
    TESSERA_UNROLL
    for (int c = 0; c < kValues; c += kVector) {
      if constexpr (kVector == 4) {
        store_columns(head, out + column(c), column(c),
                      float4{o_[i][c] * factor, o_[i][c + 1] * factor, o_[i][c + 2] * factor,
                             o_[i][c + 3] * factor});
      } else {
        store_columns(head, out + column(c), column(c),
                      float2{o_[i][c] * factor, o_[i][c + 1] * factor});
      }
    }
  }

 private:
  __device__ static float4 quad(const float* at) { return *reinterpret_cast<const float4*>(at); }
  __device__ static void load_vector(const float* at, float* values) {
    if constexpr (kVector == 4) {
      *reinterpret_cast<float4*>(values) = quad(at);
    } else {
      *reinterpret_cast<float2*>(values) = *reinterpret_cast<const float2*>(at);
    }
  }
  // The column of this thread's value c, the first of a vector.
  __device__ int column(int c) const { return kVector * n_ + kTile.kThreadsN * c; }

  int m_;
  int n_;
  SoftmaxRow softmax_[kRows];
  float s_[kRows][kKeys];
  alignas(16) float o_[kRows][kValues] = {};
};

// Applies softcap and ALiBi, and masks keys that a row does not see.
template <bool kGeneral, class Work, class Tile>
__device__ void finish_scores(const AttentionParams& p, const Work& work, int first_key,
                              BlockKind kind, ThreadRows<Tile>& rows) {
  if constexpr (kGeneral) {
    const ScoreRule<float> rule(p.scores, work.head);
    rows.for_each_score([&](float& score, int row, int key) {
      score = rule(score, work.position(row) - first_key - key);
    });
  }
  if (kind != BlockKind::mixed) return;
  rows.for_each_score([&](float& score, int row, int key) {
    const RowKeys seen = row_keys(p.mask, work.tile.sequence, work.tile.query(row));
    if (!seen.has(first_key + key)) score = -INFINITY;
  });
}

template <class Work, class Tile>
__device__ void drop_weights(const AttentionParams& p, const Work& work, int first_key,
                             ThreadRows<Tile>& rows) {
  const DropoutRule rule(p.scores, work.head, work.tile.sequence.index);
  if (rule.drop_below == 0) return;
  rows.for_each_score([&](float& weight, int row, int key) {
    if (rule.drops(work.position(row), first_key + key)) weight = 0.0f;
  });
}

template <bool kGeneral, class Work, class Tile>
__device__ void finish_rows(const ParamsOf<Tile>& p, const Work& work, float scale,
                            const ThreadRows<Tile>& rows) {
  constexpr SimtAttentionTile kTile = Tile::kShape;
  const Sequence& s = work.tile.sequence;
  const float sink = p.scores.sinks != nullptr ? p.scores.sinks[work.head] : -INFINITY;
  float* lse = head_of(p.lse, p.lse_strides, s, work.head);
  float* out = head_of(static_cast<float*>(p.out), p.out_strides, s, work.head);
  TESSERA_UNROLL
  for (int i = 0; i < kTile.thread_rows(); ++i) {
    const RowEnd end = rows.finish(i, scale, sink);
    const int query = work.tile.first + rows.row(i);
    if (query > work.tile.last) continue;
    if (p.lse != nullptr && threadIdx.x % kTile.kThreadsN == 0) {
      lse[query * p.lse_strides.row] = end.lse;
    }
    rows.store(value_head(p), i, kGeneral ? end.factor * p.scores.keep_scale : end.factor,
               out + query * p.out_strides.row);
  }
}

// out = softmax(scale * Q K^T + mask) V for one tile of queries, by fused multiply-adds in float.
//
// Work      The grid of attention_mma_kernel. A block of 128 threads owns kTile.rows queries of one
//           head; a thread holds a few rows of them against every 16th key and value.
// Pipeline  One K and one V in shared memory. V is loaded by cp.async while the scores are
//           computed, the next K while the weights are multiplied with V. Weights pass through
//           shared memory to the lanes of the same warp that share a row.
// Output    Scores are chains of fma over d_k in order, values over keys from a block's first to
//           its last, blocks from right to left: a row is the same in any tile.
// Cost      4 q_len kv_len d flop per head, at 128 fma per clock and SM. For 4 elements of d_k, 8
//           rows and 2 keys a thread issues 64 fma and 10 loads; for 4 keys, 8 rows and 8 values
//           256 fma and 16 loads. docs/kernels/attention_portable.md
// Needs     rows of q, k, v and out aligned to 16 bytes, in padded tiles to 4; pages of a power of
//           two of rows.
template <class Tile, bool kGeneral>
__global__ void __launch_bounds__(Tile::kShape.kThreads, Tile::kShape.min_blocks)
    attention_f32_kernel(const __grid_constant__ ParamsOf<Tile> p) {
  constexpr SimtAttentionTile kTile = Tile::kShape;
  using Shared = SimtAttentionShared<Tile>;
  extern __shared__ __align__(128) unsigned char dynamic[];
  Shared& shared = *reinterpret_cast<Shared*>(dynamic);
  const auto& work = shared.work;
  {
    const int head = static_cast<int>(blockIdx.y);
    const QueryTile tile = find_tile(p, kTile.rows);
    if (tile.last < tile.first) return;
    fetch_queries<typename Shared::Queries, kTile.rows, kTile.kThreads>(
        query_rows<float>(p, tile.sequence, head), tile::ptx::shared_address(shared.q), tile.first,
        tile.last, key_head(p));
    if (threadIdx.x < 32) shared.work.note(p, tile, head);
  }
  __syncthreads();
  // In general instances ScoreRule has applied the scale already.
  const float scale = (kGeneral ? 1.0f : p.scores.scale) * kLog2e;
  ThreadRows<Tile> rows(static_cast<int>(threadIdx.x));
  int block = work.blocks.last;
  if (block >= 0) shared.fetch_k(p, block);
  tile::ptx::cp_async_commit_group();
  while (block >= 0) {
    const KeyRange range = block_range<kTile.keys>(block);
    tile::ptx::cp_async_wait_group<0>();
    __syncthreads();  // K has arrived, and V has been read
    shared.fetch_v(p, block);
    tile::ptx::cp_async_commit_group();
    rows.multiply_qk(shared);
    __syncthreads();  // K has been read
    const int next = work.block_after(p.mask, block);
    if (next >= 0) shared.fetch_k(p, next);
    tile::ptx::cp_async_commit_group();
    finish_scores<kGeneral>(p, work, range.begin, work.keys.kind(range), rows);
    rows.take_weights(scale);
    if constexpr (kGeneral) drop_weights(p, work, range.begin, rows);
    rows.share_weights(shared);
    tile::ptx::cp_async_wait_group<1>();
    __syncthreads();  // V has arrived
    rows.multiply_pv(shared);
    block = next;
  }
  tile::ptx::cp_async_wait_group<0>();
  finish_rows<kGeneral>(p, work, scale, rows);
}

template <class Tile, bool kGeneral>
void launch_f32_tile(const ParamsOf<Tile>& p, const Context& ctx) {
  launch(&attention_f32_kernel<Tile, kGeneral>,
         {.grid = attention_grid(p, Tile::kShape.rows),
          .block = dim3(Tile::kShape.kThreads),
          .shared_bytes = sizeof(SimtAttentionShared<Tile>)},
         p, ctx);
}

template <int kDk, int kDv, bool kIsGeneral>
void launch_f32(const AttentionArgs& args, const Context& ctx) {
  if (args.q.num_elements() == 0) return;
  launch_f32_tile<SimtAttention<kDk, kDv>, kIsGeneral>(attention_params(args), ctx);
}

template <int kD>
void launch_f32_padded(const AttentionArgs& args, const Context& ctx) {
  if (args.q.num_elements() == 0) return;
  launch_f32_tile<PaddedSimtAttention<kD>, true>(padded_params(args), ctx);
}

}  // namespace tessera::kernels::prefill_portable
