// The end of a product with 4-bit weights: sums of 16 rows of W, which lie in registers with W
// along the rows, through the epilogue, which wants tokens there.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "kernels/gemm/epilogue.cuh"
#include "tile/fragment.cuh"
#include "tile/ptx/shared.cuh"
#include "tile/unroll.cuh"

namespace tessera::kernels {

// 16 rows of W, from `row`, by 8 or 16 tokens, from `token`, finished and stored by one warp.
// `scratch` is a kilobyte of shared memory that belongs to the warp.
template <class T, int kValues>
__device__ void store_w4_block(const float (&values)[kValues], uint32_t scratch,
                               const EpilogueParams& epilogue, int token, int row, int batch) {
  static_assert(kValues == 4 || kValues == 8);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  __syncwarp();  // the lanes have read what lay there
  TESSERA_UNROLL
  for (int i = 0; i < kValues; ++i) {
    const tile::TileCoord coord = tile::mma_accumulator_coord(lane, i % 4);
    const int col = 8 * (i / 4) + coord.col;
    tile::ptx::store_shared(scratch + (col * 16 + coord.row) * 4, __float_as_uint(values[i]));
  }
  __syncwarp();
  float d[8] = {};
  TESSERA_UNROLL
  for (int i = 0; i < 8; ++i) {
    if (kValues == 4 && i % 4 >= 2) continue;  // tokens 8 to 15
    const tile::TileCoord coord = tile::mma_accumulator_coord(lane, i % 4);
    d[i] = __uint_as_float(
        tile::ptx::load_shared(scratch + (coord.row * 16 + 8 * (i / 4) + coord.col) * 4));
  }
  const BlockPlace place{token + lane / 4, row + 2 * (lane % 4), batch};
  if (!epilogue.is_plain) transform<T>(d, epilogue, place);
  store_direct<T>(d, epilogue, place);
}

}  // namespace tessera::kernels
