// bf16 on the tensor cores, by the fragments of nvcuda::wmma.
// SPDX-License-Identifier: MIT
//
// Changed    bf16 operands with f32 sums. A warp multiplies 16 x 16 x 16 at a time; the block is 4
//            warps of 64 x 64 outputs, and the tiles lie in shared memory as rows of 64 elements.
// Cause      One warp instruction computes 4096 products where FFMA computed 32; the tensor cores'
//            peak is 989 TFLOPS at 1.83 GHz, fifteen times that of the CUDA cores.
// Predicted  A fragment's 8 rows of 16 bytes start 128 bytes apart, in the same four banks: 8
//            clocks instead of 1. For 16 of k a block reads 4 x 4 KB, 128 clocks, so 1024 with
//            conflicts, for 128 x 128 x 16 products: 512 flops a clock and SM, 134 TFLOPS at most.
// Measured   1431 us, 96.06 TFLOPS, 14.6 % of cuBLAS (NVIDIA H200, 4096 cubed)
// Shown by   l1tex__data_bank_conflicts_pipe_lsu.sum
// Profiled   237.1 M; step 06: 99.9 M
// Needs      m and n multiples of 128, k of 64.
#include <cuda_bf16.h>
#include <mma.h>

#include "kernels/launch.h"
#include "ladder/gemm/steps.h"
#include "tile/fragment.cuh"

namespace tessera::ladder {
namespace {

using namespace nvcuda;

constexpr int kTile = 128;  // of m and of n
constexpr int kTileK = 64;
constexpr int kWarpTile = 64;
constexpr int kThreads = 128;
constexpr int kSide = 16;  // of a fragment, in every direction
constexpr int kPerWarp = kWarpTile / kSide;

// WMMA does not say which thread holds which element, so sums leave through shared memory.
union Storage {
  struct {
    alignas(128) __nv_bfloat16 a[kTile][kTileK];
    alignas(128) __nv_bfloat16 b[kTile][kTileK];
  } tiles;
  alignas(128) float sums[kThreads / 32][kSide][kSide];  // one fragment a warp
};

__device__ void load_tile(__nv_bfloat16 (&tile)[kTile][kTileK], const Bf16* data, int num_k) {
  constexpr int kChunks = kTileK / 8;  // of 16 bytes
  TESSERA_UNROLL
  for (int i = 0; i < kTile * kChunks / kThreads; ++i) {
    const int chunk = static_cast<int>(threadIdx.x) + kThreads * i;
    const int row = chunk / kChunks;
    const int col = chunk % kChunks * 8;
    *reinterpret_cast<uint4*>(&tile[row][col]) =
        *reinterpret_cast<const uint4*>(data + static_cast<int64_t>(row) * num_k + col);
  }
}

using Sums = wmma::fragment<wmma::accumulator, kSide, kSide, kSide, float>;

__device__ void multiply(const Storage& storage, int row, int col,
                         Sums (&sums)[kPerWarp][kPerWarp]) {
  TESSERA_UNROLL
  for (int k = 0; k < kTileK; k += kSide) {
    wmma::fragment<wmma::matrix_a, kSide, kSide, kSide, __nv_bfloat16, wmma::row_major> a[kPerWarp];
    TESSERA_UNROLL
    for (int i = 0; i < kPerWarp; ++i) {
      wmma::load_matrix_sync(a[i], &storage.tiles.a[row + kSide * i][k], kTileK);
    }
    TESSERA_UNROLL
    for (int j = 0; j < kPerWarp; ++j) {
      // b is [n, k], so as [k, n] it is column-major.
      wmma::fragment<wmma::matrix_b, kSide, kSide, kSide, __nv_bfloat16, wmma::col_major> b;
      wmma::load_matrix_sync(b, &storage.tiles.b[col + kSide * j][k], kTileK);
      TESSERA_UNROLL
      for (int i = 0; i < kPerWarp; ++i) wmma::mma_sync(sums[i][j], a[i], b, sums[i][j]);
    }
  }
}

// A warp's 16 x 16 sums as bf16; `d` is [rows, n] at the first of them.
__device__ void store_square(const Sums& sums, float (&square)[kSide][kSide], Bf16* d, int n) {
  const int row = static_cast<int>(threadIdx.x) % 32 / 2;
  const int col = static_cast<int>(threadIdx.x) % 2 * 8;
  wmma::store_matrix_sync(&square[0][0], sums, kSide, wmma::mem_row_major);
  __syncwarp();
  const float* from = &square[row][col];
  *reinterpret_cast<uint4*>(d + static_cast<int64_t>(row) * n + col) = {
      tile::pack_pair<Bf16>(from[0], from[1]), tile::pack_pair<Bf16>(from[2], from[3]),
      tile::pack_pair<Bf16>(from[4], from[5]), tile::pack_pair<Bf16>(from[6], from[7])};
  __syncwarp();
}

__global__ void __launch_bounds__(kThreads, 2) gemm_wmma_kernel(Operands<Bf16> p) {
  __shared__ Storage storage;
  const int64_t first_row = static_cast<int64_t>(blockIdx.y) * kTile;
  const int64_t first_col = static_cast<int64_t>(blockIdx.x) * kTile;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int row = warp / 2 * kWarpTile;
  const int col = warp % 2 * kWarpTile;
  Sums sums[kPerWarp][kPerWarp];
  TESSERA_UNROLL
  for (int i = 0; i < kPerWarp * kPerWarp; ++i) {
    wmma::fill_fragment(sums[i / kPerWarp][i % kPerWarp], 0.0f);
  }
  for (int k = 0; k < p.k; k += kTileK) {
    load_tile(storage.tiles.a, p.a + first_row * p.k + k, p.k);
    load_tile(storage.tiles.b, p.b + first_col * p.k + k, p.k);
    __syncthreads();
    multiply(storage, row, col, sums);
    __syncthreads();
  }
  Bf16* d = p.d + (first_row + row) * p.n + first_col + col;
  TESSERA_UNROLL
  for (int i = 0; i < kPerWarp; ++i) {
    TESSERA_UNROLL
    for (int j = 0; j < kPerWarp; ++j) {
      store_square(sums[i][j], storage.sums[warp],
                   d + static_cast<int64_t>(kSide * i) * p.n + kSide * j, p.n);
    }
  }
}

}  // namespace

void launch_wmma(const Problem& problem, const Context& ctx) {
  const auto num_tiles = [](int size) { return static_cast<unsigned>(size / kTile); };
  kernels::launch(
      gemm_wmma_kernel,
      {.grid = dim3(num_tiles(problem.n), num_tiles(problem.m)), .block = dim3(kThreads)},
      Operands<Bf16>(problem), ctx);
}

}  // namespace tessera::ladder
