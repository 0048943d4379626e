// What the Hopper steps share: operand tiles as TMA leaves them, and their products by WGMMA.
// SPDX-License-Identifier: MIT
#pragma once

#include "ladder/gemm/steps.h"
#include "tile/descriptor.cuh"
#include "tile/fragment.cuh"
#include "tile/ptx/wgmma.cuh"
#include "tile/tensor_map.h"

namespace tessera::ladder {

inline constexpr tile::Swizzle kSwizzle = tile::Swizzle::b128;
inline constexpr int kStageK = 64;     // elements of k in a stage: the 128 bytes of a swizzled row
inline constexpr int kRowBytes = 128;  // of an operand tile
inline constexpr int kGroupThreads = 128;
inline constexpr int kGroupRows = 64;  // of a warpgroup's WGMMA

// An operand tile of kRows rows of m or n, and a stage of the ring.
template <int kRows>
struct alignas(1024) OperandTile {
  unsigned char bytes[kRows * kRowBytes];
};
template <int kTileM, int kTileN>
struct OperandStage {
  static constexpr uint32_t kBytes = (kTileM + kTileN) * kRowBytes;
  OperandTile<kTileM> a;
  OperandTile<kTileN> b;
};

struct WgmmaParams {
  CUtensorMap a;      // [m, k]
  CUtensorMap b;      // [n, k]
  CUtensorMap d_map;  // of d, if TMA stores it
  Bf16* d;            // [m, n]
  int m;
  int n;
  int k;
};

// A row-major matrix, copied in boxes of `box_rows` rows by 64 columns.
inline CUtensorMap matrix_map(const void* data, int num_rows, int num_cols, int box_rows) {
  return tile::make_tensor_map({.data = data,
                                .dtype = DType::bf16,
                                .rank = 2,
                                .dims = {num_cols, num_rows},
                                .strides = {1, num_cols},
                                .box = {64, box_rows},
                                .swizzle = kSwizzle});
}

inline WgmmaParams wgmma_params(const Problem& p, int a_box_rows, int b_box_rows) {
  return {matrix_map(p.a, p.m, p.k, a_box_rows),
          matrix_map(p.b, p.n, p.k, b_box_rows),
          matrix_map(p.d, p.m, p.n, kGroupRows),
          static_cast<Bf16*>(p.d),
          p.m,
          p.n,
          p.k};
}

// Issues 64 rows of a (at shared address `a`) times all rows of b, over a stage's k. The caller
// fences before and commits after. Without `accumulate` the first product overwrites the sums.
template <int kRegisters>
__device__ __forceinline__ void issue_products(float (&sums)[kRegisters], uint32_t a, uint32_t b,
                                               bool accumulate) {
  const uint64_t a_descriptor = tile::k_major_descriptor<kSwizzle>(a, kGroupRows);
  const uint64_t b_descriptor = tile::k_major_descriptor<kSwizzle>(b, 2 * kRegisters);
  TESSERA_UNROLL
  for (int k_byte = 0; k_byte < kRowBytes; k_byte += 32) {
    const auto step = static_cast<uint32_t>(k_byte);
    tile::ptx::wgmma_ss<Bf16, Bf16>(sums, tile::advance(a_descriptor, step),
                                    tile::advance(b_descriptor, step), accumulate || k_byte > 0);
  }
}

// 64 rows of sums to `d`, [rows, n] at the first of them: two columns a store, so that a quad of
// lanes writes 16 bytes of a row.
template <int kRegisters>
__device__ __forceinline__ void store_pairs(const float (&sums)[kRegisters], Bf16* d, int n) {
  const int thread = static_cast<int>(threadIdx.x) % kGroupThreads;
  TESSERA_UNROLL
  for (int i = 0; i < kRegisters; i += 2) {
    const tile::TileCoord at = tile::wgmma_accumulator_coord(thread, i);
    *reinterpret_cast<uint32_t*>(d + static_cast<int64_t>(at.row) * n + at.col) =
        tile::pack_pair<Bf16>(sums[i], sums[i + 1]);
  }
}

}  // namespace tessera::ladder
