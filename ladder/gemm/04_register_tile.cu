// 64 outputs per thread: a value read from shared memory serves eight products.
// SPDX-License-Identifier: MIT
//
// Changed    A block computes 128 x 128 outputs, a thread 8 x 8 of them in registers. Tiles lie
//            with k as rows, so that the threads' columns are neighbours.
// Cause      For each k a thread reads 8 + 8 words and computes 64 products from them: a quarter of
//            a word per product, where step 03 read two. Multiply-adds become the larger part of
//            all instructions.
// Predicted  64 FFMA and 16 LDS of a warp take 80 issue slots, so at most 80 % of 66.9 TFLOPS, if
//            loads from L2 and the two barriers of every 8 k were free. They are not, and only a
//            second block on the SM hides them: 30 to 40 TFLOPS, five times step 03.
// Measured   4359 us, 31.53 TFLOPS, 62.0 % of cuBLAS (NVIDIA H200, 4096 cubed)
// Shown by   smsp__inst_executed_pipe_lsu.sum
// Profiled   604.5 M; step 03: 4565.5 M
// Needs      Any m, n, k; what lies outside counts as zero.
#include "kernels/launch.h"
#include "ladder/gemm/steps.h"
#include "tile/unroll.cuh"

namespace tessera::ladder {
namespace {

constexpr int kTile = 128;  // of m and of n
constexpr int kTileK = 8;
constexpr int kPad = 4;    // the 8 k and 4 rows that a warp stores fall into 32 banks
constexpr int kSide = 16;  // threads of a block in each direction
constexpr int kThreads = kSide * kSide;
constexpr int kPerThread = kTile / kSide;  // outputs in each direction

using Tile = float[kTileK][kTile + kPad];

// Rows `first` to first + 127 of a matrix [num_rows, num_k] at column k, as [k][row].
__device__ void load_tile(Tile& tile, const float* data, int first, int num_rows, int k,
                          int num_k) {
  TESSERA_UNROLL
  for (int i = 0; i < kTile * kTileK / kThreads; ++i) {
    const int element = static_cast<int>(threadIdx.x) + kThreads * i;
    const int row = element / kTileK;
    const int col = element % kTileK;  // eight lanes read the 32 bytes of a sector
    const bool is_inside = first + row < num_rows && k + col < num_k;
    tile[col][row] = is_inside ? data[static_cast<int64_t>(first + row) * num_k + k + col] : 0.0f;
  }
}

__global__ void __launch_bounds__(kThreads, 2) gemm_register_tile_kernel(Operands<float> p) {
  __shared__ Tile a_tile;
  __shared__ Tile b_tile;
  const int x = static_cast<int>(threadIdx.x) % kSide;
  const int y = static_cast<int>(threadIdx.x) / kSide;
  const int first_row = static_cast<int>(blockIdx.y) * kTile;
  const int first_col = static_cast<int>(blockIdx.x) * kTile;
  float sums[kPerThread][kPerThread] = {};
  for (int k = 0; k < p.k; k += kTileK) {
    load_tile(a_tile, p.a, first_row, p.m, k, p.k);
    load_tile(b_tile, p.b, first_col, p.n, k, p.k);
    __syncthreads();
    TESSERA_UNROLL
    for (int step = 0; step < kTileK; ++step) {
      float a[kPerThread];
      float b[kPerThread];
      // A thread's rows and columns lie kSide apart, so that the lanes of a load are neighbours.
      TESSERA_UNROLL
      for (int i = 0; i < kPerThread; ++i) a[i] = a_tile[step][y + kSide * i];
      TESSERA_UNROLL
      for (int j = 0; j < kPerThread; ++j) b[j] = b_tile[step][x + kSide * j];
      TESSERA_UNROLL
      for (int i = 0; i < kPerThread; ++i) {
        TESSERA_UNROLL
        for (int j = 0; j < kPerThread; ++j) sums[i][j] += a[i] * b[j];
      }
    }
    __syncthreads();
  }
  TESSERA_UNROLL
  for (int i = 0; i < kPerThread; ++i) {
    TESSERA_UNROLL
    for (int j = 0; j < kPerThread; ++j) {
      const int row = first_row + y + kSide * i;
      const int col = first_col + x + kSide * j;
      if (row < p.m && col < p.n) p.d[static_cast<int64_t>(row) * p.n + col] = sums[i][j];
    }
  }
}

}  // namespace

void launch_register_tile(const Problem& problem, const Context& ctx) {
  const auto num_tiles = [](int size) { return static_cast<unsigned>((size + kTile - 1) / kTile); };
  kernels::launch(
      gemm_register_tile_kernel,
      {.grid = dim3(num_tiles(problem.n), num_tiles(problem.m)), .block = dim3(kThreads)},
      Operands<float>(problem), ctx);
}

}  // namespace tessera::ladder
