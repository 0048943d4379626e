// The matrix product of int8 with int8 for few rows of A, on CUDA cores by dp4a: sm_80 up.
// SPDX-License-Identifier: MIT
//
//   D = epilogue(A[m, k] . B[n, k]^T)     m up to 4; four products a dp4a; sums in 32 bits
//
// Work      A block computes all rows of 32 columns, each of its 8 warps 4 columns. The lanes of a
//           warp share k: each multiplies every 32nd chunk of 16 codes.
// Pipeline  None through shared memory: two chunks of four columns, 128 bytes a lane, are loaded
//           before the first is multiplied. Rows of A come from L1.
// Output    Sums of integers are exact in any order, and the epilogue is that of the tensor-core
//           kernel (token_codes.cuh), so the results are the same bits.
// Cost      n k bytes, once: bandwidth is the limit. m / 4 dp4a a byte, of 64 a clock and SM.
//           docs/kernels/gemm_portable.md
// Needs     Rows of A and B that start at multiples of 16 bytes, k a multiple of 16, scales of
//           whole rows.
#pragma once

#include "kernels/gemm/portable/product.cuh"
#include "kernels/with_constant.h"
#include "tile/unroll.cuh"

namespace tessera::kernels {

inline constexpr int kDp4aWarps = 8;
inline constexpr int kDp4aWarpCols = 4;
inline constexpr int kDp4aCols = kDp4aWarps * kDp4aWarpCols;

// Sixteen codes of a row, or zeros beyond k.
__device__ __forceinline__ int4 load_codes(const int8_t* row, int at, int k) {
  return at < k ? __ldg(reinterpret_cast<const int4*>(row + at)) : int4{};
}

__device__ __forceinline__ int32_t dot_sixteen(int4 a, int4 b, int32_t sum) {
  return __dp4a(a.w, b.w, __dp4a(a.z, b.z, __dp4a(a.y, b.y, __dp4a(a.x, b.x, sum))));
}

template <class T, int kRows>
__global__ void __launch_bounds__(32 * kDp4aWarps)
    gemm_dp4a_kernel(const __grid_constant__ PortableGemmParams p) {
  constexpr int kStep = 32 * 16;  // codes of a row that a warp takes at once
  constexpr int kAtOnce = 2;
  __shared__ __align__(16) StagedTile<16, kDp4aCols> tile;  // rows beyond kRows stay unused
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int first = static_cast<int>(threadIdx.x) / 32 * kDp4aWarpCols;
  const int col = static_cast<int>(blockIdx.x) * kDp4aCols;
  // Beyond m and n, rows that exist: their products are not stored.
  const int8_t* a[kRows];
  const int8_t* b[kDp4aWarpCols];
  TESSERA_UNROLL
  for (int r = 0; r < kRows; ++r) {
    a[r] = static_cast<const int8_t*>(p.a) + min(r, p.epilogue.m - 1) * p.a_stride;
  }
  TESSERA_UNROLL
  for (int c = 0; c < kDp4aWarpCols; ++c) {
    b[c] = static_cast<const int8_t*>(p.b) + min(col + first + c, p.epilogue.n - 1) * p.b_stride;
  }

  int32_t sums[kRows][kDp4aWarpCols] = {};
  for (int at = 16 * lane; at < p.k; at += kAtOnce * kStep) {
    int4 codes[kAtOnce][kDp4aWarpCols];
    TESSERA_UNROLL
    for (int i = 0; i < kAtOnce * kDp4aWarpCols; ++i) {
      const int step = i / kDp4aWarpCols, c = i % kDp4aWarpCols;
      codes[step][c] = load_codes(b[c], at + step * kStep, p.k);
    }
    TESSERA_UNROLL
    for (int i = 0; i < kAtOnce * kRows; ++i) {
      const int step = i / kRows, r = i % kRows;
      const int4 tokens = load_codes(a[r], at + step * kStep, p.k);
      TESSERA_UNROLL
      for (int c = 0; c < kDp4aWarpCols; ++c) {
        sums[r][c] = dot_sixteen(tokens, codes[step][c], sums[r][c]);
      }
    }
  }

  TESSERA_UNROLL
  for (int i = 0; i < kRows * kDp4aWarpCols; ++i) {
    const int r = i / kDp4aWarpCols, c = i % kDp4aWarpCols;
    const int32_t sum = __reduce_add_sync(0xffffffffu, sums[r][c]);
    if (lane == i) *tile.at(r, first + c) = static_cast<float>(sum);
  }
  __syncthreads();
  finish_tile<T>(tile, p.epilogue, 0, col, 0);
}

template <class T>
void launch_gemm_dp4a(const GemmArgs& args, const Context& ctx) {
  const ProductSize size = product_size(args);
  const TileCounts tiles = count_tiles(size, kDp4aRows, kDp4aCols);
  if (tiles.total() == 0) return;
  const int rows = size.m <= 2 ? static_cast<int>(size.m) : kDp4aRows;
  with_constant<1, 2, kDp4aRows>(rows, [&](auto num_rows) {
    launch(&gemm_dp4a_kernel<T, num_rows()>,
           {.grid = dim3(static_cast<unsigned>(tiles.n)), .block = dim3(32 * kDp4aWarps)},
           portable_gemm_params(args, tiles), ctx);
  });
}

}  // namespace tessera::kernels
