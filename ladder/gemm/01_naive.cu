// One thread per output element; neighbours in a warp are neighbours in a column.
// SPDX-License-Identifier: MIT
//
// Changed    Nothing yet: the formula, written down. The lanes of a warp are 32 rows of d.
// Cause      Rows of a lie k floats apart, so one load of a warp touches 32 cache lines and uses 4
//            bytes of each. L1 looks up one line per clock, so 31 of the 32 wait.
// Predicted  For one step of k a warp needs 32 lines of a and 1 of b: 33 clocks for 32
//            multiply-adds. There are 4096^3 / 32 such steps on 132 SMs at 1.98 GHz: 271 ms, 0.5
//            TFLOPS of 66.9.
// Measured   276000 us, 0.50 TFLOPS, 1.0 % of cuBLAS (NVIDIA H200, 4096 cubed)
// Shown by   l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio
// Profiled   16.5
// Needs      Any m, n, k.
#include "kernels/launch.h"
#include "ladder/gemm/steps.h"

namespace tessera::ladder {
namespace {

constexpr int kSide = 32;  // of a block, in both directions
constexpr int kThreads = kSide * kSide;

__global__ void __launch_bounds__(kThreads) gemm_naive_kernel(Operands<float> p) {
  const int row = static_cast<int>(blockIdx.x * kSide + threadIdx.x);
  const int col = static_cast<int>(blockIdx.y * kSide + threadIdx.y);
  if (row >= p.m || col >= p.n) return;
  const float* a = p.a + static_cast<int64_t>(row) * p.k;
  const float* b = p.b + static_cast<int64_t>(col) * p.k;
  float sum = 0;
  for (int k = 0; k < p.k; ++k) sum += a[k] * b[k];
  p.d[static_cast<int64_t>(row) * p.n + col] = sum;
}

}  // namespace

void launch_naive(const Problem& problem, const Context& ctx) {
  const auto num_tiles = [](int size) { return static_cast<unsigned>((size + kSide - 1) / kSide); };
  kernels::launch(
      gemm_naive_kernel,
      {.grid = dim3(num_tiles(problem.m), num_tiles(problem.n)), .block = dim3(kSide, kSide)},
      Operands<float>(problem), ctx);
}

}  // namespace tessera::ladder
