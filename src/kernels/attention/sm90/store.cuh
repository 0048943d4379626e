// How a warpgroup's results leave its registers.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/attention/sm90/softmax.cuh"
#include "tile/ptx/barrier.cuh"
#include "tile/ptx/stmatrix.cuh"
#include "tile/ptx/tma_tensor.cuh"
#include "tile/swizzle.cuh"

namespace tessera::kernels {

// Four lanes with four words each, a word of every block of columns: afterwards lane i has the four
// words of block i, 16 bytes side by side.
__device__ __forceinline__ void gather_block(uint32_t (&words)[4]) {
  const bool is_odd = threadIdx.x % 2 == 1;
  const bool is_high = threadIdx.x / 2 % 2 == 1;
  TESSERA_UNROLL
  for (int half = 0; half < 4; half += 2) {
    const uint32_t got = __shfl_xor_sync(~0u, is_odd ? words[half] : words[half + 1], 1);
    words[half] = is_odd ? got : words[half];
    words[half + 1] = is_odd ? words[half + 1] : got;
  }
  const uint32_t got0 = __shfl_xor_sync(~0u, is_high ? words[0] : words[2], 2);
  const uint32_t got1 = __shfl_xor_sync(~0u, is_high ? words[1] : words[3], 2);
  const uint32_t kept0 = is_high ? words[2] : words[0];
  const uint32_t kept1 = is_high ? words[3] : words[1];
  words[0] = is_high ? got0 : kept0;
  words[1] = is_high ? got1 : kept1;
  words[2] = is_high ? kept0 : got0;
  words[3] = is_high ? kept1 : got1;
}

// The thread's number, said anew: what is worked out from it here is not kept in registers through
// all of a tile.
__device__ __forceinline__ int fresh_thread() {
  int thread = static_cast<int>(threadIdx.x);
  asm volatile("" : "+r"(thread));
  return thread;
}

// The first of a thread's two rows of the sequence; the other is 8 below.
__device__ __forceinline__ int first_row_of(int thread, const PrefillWork& work, int warpgroup) {
  return work.first_row + 64 * warpgroup + thread % 128 / 32 * 16 + thread % 32 / 4;
}

// A row of the tile, and where it goes.
template <class Out>
struct OutRow {
  Out* out;    // null: the sequence has no such row
  float* lse;  // null: not asked for
};

template <class Out>
__device__ OutRow<Out> out_row(const Sm90PrefillParams& p, const PrefillWork& work, int row) {
  if (row >= work.q_len) return {nullptr, nullptr};
  const AttentionParams& c = p.common;
  const int64_t at = work.q_begin + (row >> p.log2_packed);
  const int head = (work.head << p.log2_packed) + (row & ((1 << p.log2_packed) - 1));
  Out* out = static_cast<Out*>(c.out) + work.sequence * c.out_strides.batch +
             at * c.out_strides.row + head * c.out_strides.head;
  if (c.lse == nullptr) return {out, nullptr};
  return {out, c.lse + work.sequence * c.lse_strides.batch + at * c.lse_strides.row +
                   head * c.lse_strides.head};
}

template <class Out, class Tile>
__device__ void store_tile(const Sm90PrefillParams& p, const PrefillWork& work, int warpgroup,
                           const float (&o)[Tile::kValueDim / 2], const RowEnds& ends) {
  const int thread = fresh_thread();
  const int lane = thread % 32;
  const int first = first_row_of(thread, work, warpgroup);
  TESSERA_UNROLL
  for (int r = 0; r < 2; ++r) {
    const OutRow<Out> row = out_row<Out>(p, work, first + 8 * r);
    TESSERA_UNROLL
    for (int group = 0; group < Tile::kValueDim / 32; ++group) {
      uint32_t words[4];
      TESSERA_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int at = 16 * group + 4 * i + 2 * r;
        words[i] = tile::pack_pair<Out>(o[at] * ends.factor[r], o[at + 1] * ends.factor[r]);
      }
      gather_block(words);
      if (row.out != nullptr && (!Tile::kIsPadded || 32 * group + 8 * (lane % 4) < p.value_dim)) {
        *reinterpret_cast<uint4*>(row.out + 32 * group + 8 * (lane % 4)) =
            uint4{words[0], words[1], words[2], words[3]};
      }
    }
    if (row.lse != nullptr && lane % 4 == 0) *row.lse = ends.lse[r];
  }
}

// The same through shared memory, at the place of the warpgroup's queries, which nobody reads any
// more. One thread has stores under way afterwards.
template <class Out, class Tile>
__device__ void stage_tile(const Sm90PrefillParams& p, const PrefillWork& work, int warpgroup,
                           uint32_t q_tile, int barrier, const float (&o)[Tile::kValueDim / 2],
                           const RowEnds& ends) {
  constexpr int kSlabCols = kSlabBytes / static_cast<int>(sizeof(Out));
  const int thread = fresh_thread();
  const int lane = thread % 32;
  const int warp = thread % 128 / 32;
  const tile::MatrixRow at = tile::matrix_row_16x32(lane);
  const uint32_t rows = q_tile + 64 * warpgroup * kSlabBytes;
  TESSERA_UNROLL
  for (int step = 0; step < Tile::kValueDim / 16; ++step) {
    uint32_t words[4];
    TESSERA_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int reg = 8 * step + 2 * i;
      words[i] = tile::pack_pair<Out>(o[reg] * ends.factor[i % 2], o[reg + 1] * ends.factor[i % 2]);
    }
    const int slab = step / 4;
    tile::ptx::stmatrix(rows + slab * Tile::kRows * kSlabBytes +
                            tile::swizzled(tile::Swizzle::b128, (16 * warp + at.row) * kSlabBytes +
                                                                    32 * (step % 4) + at.byte),
                        words);
  }
  if (p.common.lse != nullptr && lane % 4 == 0) {
    TESSERA_UNROLL
    for (int r = 0; r < 2; ++r) {
      const OutRow<Out> out = out_row<Out>(p, work, first_row_of(thread, work, warpgroup) + 8 * r);
      if (out.lse != nullptr) *out.lse = ends.lse[r];
    }
  }
  tile::ptx::fence_proxy_async_shared();
  tile::ptx::bar_sync(barrier, 128);
  if (threadIdx.x % 128 == 0) {
    const int row = work.q_begin + ((work.first_row + 64 * warpgroup) >> p.log2_packed);
    const int batch = p.common.q_starts != nullptr ? 0 : work.sequence;
    TESSERA_UNROLL
    for (int slab = 0; slab < (Tile::kValueDim + kSlabCols - 1) / kSlabCols; ++slab) {
      tile::ptx::tensor_store(&p.out, tile::ptx::Coord{slab * kSlabCols, 0, row, work.head, batch},
                              rows + slab * Tile::kRows * kSlabBytes);
    }
    tile::ptx::bulk_commit_group();
  }
}

// The same for results whose columns lie as turned values do (turn.cuh), to bf16 or f16: a lane has
// four side by side.
template <class Tile>
__device__ void store_turned(const Sm90PrefillParams& p, const PrefillWork& work, int warpgroup,
                             const float (&o)[Tile::kValueDim / 2], const RowEnds& ends) {
  const int thread = fresh_thread();
  const int lane = thread % 32;
  const int first = first_row_of(thread, work, warpgroup);
  TESSERA_UNROLL
  for (int r = 0; r < 2; ++r) {
    const OutRow<uint16_t> row = out_row<uint16_t>(p, work, first + 8 * r);
    if (row.out == nullptr) continue;
    TESSERA_UNROLL
    for (int group = 0; group < Tile::kValueDim / 16; ++group) {
      float x[4];
      TESSERA_UNROLL
      for (int i = 0; i < 4; ++i) {
        x[i] = o[8 * group + 4 * (i % 2) + 2 * r + i / 2] * ends.factor[r];
      }
      const uint2 words =
          p.is_out_bf16
              ? uint2{tile::pack_pair<Bf16>(x[0], x[1]), tile::pack_pair<Bf16>(x[2], x[3])}
              : uint2{tile::pack_pair<F16>(x[0], x[1]), tile::pack_pair<F16>(x[2], x[3])};
      *reinterpret_cast<uint2*>(row.out + 16 * group + 4 * (lane % 4)) = words;
    }
    if (row.lse != nullptr && lane % 4 == 0) *row.lse = ends.lse[r];
  }
}

// Of a tile none of whose rows sees a key: zeros.
__device__ inline RowEnds unseen_ends(const Sm90PrefillParams& p, const PrefillWork& work) {
  const float* sinks = p.common.scores.sinks;
  const float lse = sinks != nullptr ? sinks[work.head] : kNegInfinity;
  return {{0, 0}, {lse, lse}};
}

}  // namespace tessera::kernels
