// One warp per output element, its lanes along k: every load is one whole cache line.
// SPDX-License-Identifier: MIT
//
// Changed    Lanes walk k, which is contiguous in both operands, and add up by shuffles at the end.
// Cause      128 bytes of one line cost L1 one clock; step 01 needed 33 clocks for the same number
//            of products.
// Predicted  2 lines for 32 multiply-adds: 4096^3 / 32 * 2 clocks on 132 SMs at 1.98 GHz are 16.4
//            ms, 8.4 TFLOPS at most. A block of 4 x 8 outputs reads 12 rows of 16 KB from L2, 103
//            GB in all; at about 6 TB/s that is 17 ms more, which overlaps in part: 4 to 7 TFLOPS,
//            ten times step 01.
// Measured   46450 us, 2.96 TFLOPS, 5.8 % of cuBLAS (NVIDIA H200, 4096 cubed)
// Shown by   l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio
// Profiled   4; step 01: 16.5
// Needs      Any m, n, k.
#include "kernels/launch.h"
#include "ladder/gemm/steps.h"
#include "tile/reduce.cuh"

namespace tessera::ladder {
namespace {

// The warps of a block share the rows they read, in L1.
constexpr int kRows = 4;
constexpr int kCols = 8;
constexpr int kThreads = kRows * kCols * tile::kWarpSize;

__global__ void __launch_bounds__(kThreads) gemm_coalesced_kernel(Operands<float> p) {
  const int lane = static_cast<int>(threadIdx.x) % tile::kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / tile::kWarpSize;
  const int row = static_cast<int>(blockIdx.y) * kRows + warp / kCols;
  const int col = static_cast<int>(blockIdx.x) * kCols + warp % kCols;
  if (row >= p.m || col >= p.n) return;  // whole warps leave
  const float* a = p.a + static_cast<int64_t>(row) * p.k;
  const float* b = p.b + static_cast<int64_t>(col) * p.k;
  float sum = 0;
  for (int k = lane; k < p.k; k += tile::kWarpSize) sum += a[k] * b[k];
  sum = tile::warp_reduce<tile::Sum>(sum);
  if (lane == 0) p.d[static_cast<int64_t>(row) * p.n + col] = sum;
}

}  // namespace

void launch_coalesced(const Problem& problem, const Context& ctx) {
  const auto num_cols = static_cast<unsigned>((problem.n + kCols - 1) / kCols);
  const auto num_rows = static_cast<unsigned>((problem.m + kRows - 1) / kRows);
  kernels::launch(gemm_coalesced_kernel,
                  {.grid = dim3(num_cols, num_rows), .block = dim3(kThreads)},
                  Operands<float>(problem), ctx);
}

}  // namespace tessera::ladder
