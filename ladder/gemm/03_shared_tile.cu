// A tile of each operand in shared memory, read by the whole block.
// SPDX-License-Identifier: MIT
//
// Changed    A block computes 32 x 32 outputs, one a thread, and fetches 32 rows of a and of b once
//            for all of them, 32 columns of k at a time.
// Cause      An element read from L2 serves 32 products instead of the 4 or 8 of step 02.
// Predicted  L2 delivers 64 rows of 16 KB for 1024 outputs: 17 GB, not 103. But a product still
//            reads 2 words of shared memory, the same path as L1: 16.4 ms, 8.4 TFLOPS at most, as
//            before. So 1.2 to 1.7 times step 02: the tile saves traffic, not instructions.
// Measured   20220 us, 6.80 TFLOPS, 13.4 % of cuBLAS (NVIDIA H200, 4096 cubed)
// Shown by   lts__t_sectors_op_read.sum
// Profiled   20.88 GB; step 02: 111.66 GB
// Needs      Any m, n, k; what lies outside counts as zero.
#include "kernels/launch.h"
#include "ladder/gemm/steps.h"
#include "tile/unroll.cuh"

namespace tessera::ladder {
namespace {

constexpr int kSide = 32;
constexpr int kThreads = kSide * kSide;
constexpr int kPad = 1;  // a column of b's tile then lies in 32 different banks

// Element (row, col) of a matrix of num_rows x num_cols, or zero outside.
__device__ float at(const float* data, int row, int col, int num_rows, int num_cols) {
  return row < num_rows && col < num_cols ? data[static_cast<int64_t>(row) * num_cols + col] : 0.0f;
}

__global__ void __launch_bounds__(kThreads) gemm_shared_tile_kernel(Operands<float> p) {
  __shared__ float a_tile[kSide][kSide + kPad];
  __shared__ float b_tile[kSide][kSide + kPad];
  const int x = static_cast<int>(threadIdx.x);
  const int y = static_cast<int>(threadIdx.y);
  const int first_row = static_cast<int>(blockIdx.y) * kSide;
  const int first_col = static_cast<int>(blockIdx.x) * kSide;
  float sum = 0;
  for (int k = 0; k < p.k; k += kSide) {
    a_tile[y][x] = at(p.a, first_row + y, k + x, p.m, p.k);
    b_tile[y][x] = at(p.b, first_col + y, k + x, p.n, p.k);
    __syncthreads();
    TESSERA_UNROLL
    for (int i = 0; i < kSide; ++i) sum += a_tile[y][i] * b_tile[x][i];
    __syncthreads();  // the tiles are overwritten next
  }
  if (first_row + y < p.m && first_col + x < p.n) {
    p.d[static_cast<int64_t>(first_row + y) * p.n + first_col + x] = sum;
  }
}

}  // namespace

void launch_shared_tile(const Problem& problem, const Context& ctx) {
  const auto num_tiles = [](int size) { return static_cast<unsigned>((size + kSide - 1) / kSide); };
  kernels::launch(
      gemm_shared_tile_kernel,
      {.grid = dim3(num_tiles(problem.n), num_tiles(problem.m)), .block = dim3(kSide, kSide)},
      Operands<float>(problem), ctx);
}

}  // namespace tessera::ladder
