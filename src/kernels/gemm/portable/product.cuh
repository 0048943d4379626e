// What the portable kernels share: their parameters, and the end of a tile, where accumulators are
// laid down in shared memory, finished and stored.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/gemm/epilogue.cuh"
#include "kernels/gemm/portable/launch.h"
#include "kernels/launch.h"
#include "tessera/core/device.h"

namespace tessera::kernels {

// What the kernels read: plain data, copied by value into constant memory. Strides count elements.
struct PortableGemmParams {
  const void* a;  // [batch, m, k]
  const void* b;  // [batch, n, k], or [n, k] for all with b_batch_stride 0
  int64_t a_stride;
  int64_t a_batch_stride;
  int64_t b_stride;
  int64_t b_batch_stride;
  int k;
  int tiles_m;
  int tiles_n;
  EpilogueParams epilogue;  // m and n among them
};
static_assert(std::is_trivially_copyable_v<PortableGemmParams>);

inline PortableGemmParams portable_gemm_params(const GemmArgs& args, const TileCounts& tiles) {
  const auto batch_stride = [](const TensorView& t) { return t.rank == 3 ? t.stride(0) : 0; };
  return {.a = args.a.data,
          .b = args.b.values.data,
          .a_stride = args.a.stride(-2),
          .a_batch_stride = batch_stride(args.a),
          .b_stride = args.b.values.stride(-2),
          .b_batch_stride = batch_stride(args.b.values),
          .k = static_cast<int>(args.a.size(-1)),
          .tiles_m = static_cast<int>(tiles.m),
          .tiles_n = static_cast<int>(tiles.n),
          .epilogue = epilogue_params(args)};
}

// A tile of floats in shared memory, row by row. A loop can index it, unlike registers, so the
// epilogue is compiled once for a block of 16 x 16 and not once for each block of a warp. That
// costs about 1 % of a product over k = 4096 on tensor cores. Groups of 8 floats are exchanged
// within a row, so that 4 rows of 8, what half a warp holds of an accumulator, fall into different
// banks.
template <int kRows, int kCols>
struct StagedTile {
  static_assert(kRows % 16 == 0 && kCols % 32 == 0);
  float values[kRows * kCols];

  // The address of an even column; the next column is beside it, and from a multiple of 4 up to 4
  // columns are.
  __device__ float* at(int row, int col) { return values + row * kCols + (col ^ (row % 4 * 8)); }
};

// Lays down a warp's accumulators, blocks of 16 x 8 from (row, col) of the tile on.
template <int kBlocksM, int kBlocksN, int kRows, int kCols>
__device__ void stage_accumulators(const float (&d)[kBlocksM][kBlocksN][4],
                                   StagedTile<kRows, kCols>& tile, int row, int col, int lane) {
  TESSERA_UNROLL
  for (int i = 0; i < kBlocksM; ++i) {
    TESSERA_UNROLL
    for (int j = 0; j < kBlocksN; ++j) {
      TESSERA_UNROLL
      for (int half = 0; half < 2; ++half) {
        float* at = tile.at(row + 16 * i + lane / 4 + 8 * half, col + 8 * j + 2 * (lane % 4));
        *reinterpret_cast<float2*>(at) = {d[i][j][2 * half], d[i][j][2 * half + 1]};
      }
    }
  }
}

// Finishes a tile that all threads have written and synchronised on; warps take blocks in turn.
// `row` and `col` are where the tile begins in the product.
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
