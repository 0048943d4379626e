// The end of a portable kernel: accumulators laid down in shared memory, then finished and stored.
// SPDX-License-Identifier: MIT
//
// Shared memory can be indexed by a loop where registers cannot, so the steps of the epilogue are
// compiled once for a block of 16 x 16 and not once for each block a warp holds. It costs one trip
// of the tile through shared memory, about 1 % of a product over k = 4096 by tensor cores.
#pragma once

#include "kernels/gemm/epilogue.cuh"

namespace tessera::kernels {

// A tile of floats, row after row. Groups of 8 are exchanged within a row so that 4 rows of 8
// floats, what half a warp holds of an accumulator, lie in different banks.
template <int kRows, int kCols>
struct StagedTile {
  static_assert(kRows % 16 == 0 && kCols % 32 == 0);
  float values[kRows * kCols];

  // At an even column; the next is beside it. Up to 4 from a column that 4 divides.
  __device__ float* at(int row, int col) { return values + row * kCols + (col ^ (row % 4 * 8)); }
};

// Finishes a tile that all threads have written (and synchronised on): each warp takes blocks in
// turn. `row` and `col` are those of the product where the tile begins.
template <class T, int kRows, int kCols>
__device__ void finish_tile(StagedTile<kRows, kCols>& tile, const EpilogueParams& p, int row,
                            int col, int batch) {
  constexpr int kBlocksN = kCols / 16;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int num_warps = static_cast<int>(blockDim.x) / 32;
  for (int i = static_cast<int>(threadIdx.x) / 32; i < kRows / 16 * kBlocksN; i += num_warps) {
    const int block_row = i / kBlocksN * 16;
    const int block_col = i % kBlocksN * 16;
    if (row + block_row >= p.m || col + block_col >= p.n) continue;
    float d[8];
    TESSERA_UNROLL
    for (int pair = 0; pair < 4; ++pair) {
      const float2 values = *reinterpret_cast<const float2*>(
          tile.at(block_row + lane / 4 + pair % 2 * 8, block_col + pair / 2 * 8 + 2 * (lane % 4)));
      d[2 * pair] = values.x;
      d[2 * pair + 1] = values.y;
    }
    const BlockPlace place{row + block_row + lane / 4, col + block_col + 2 * (lane % 4), batch};
    transform<T>(d, p, place);
    store_direct<T>(d, p, place);
  }
}

}  // namespace tessera::kernels
