// 16 bytes per access: loads from global and from shared memory, and stores.
// SPDX-License-Identifier: MIT
//
// Changed    f32_tile.cuh: a thread's 8 x 8 outputs are four squares of 4 x 4, so that one LDS.128
//            brings four of its words; tiles come from global memory by LDG.128, 16 deep in k.
// Cause      A quarter of the load instructions and half of the barriers: the issue slots that step
//            04 spent on them are free for multiply-adds.
// Predicted  For each k 64 FFMA and 4 LDS take 68 slots, where step 04 needed 80: at most 94 % of
//            66.9 TFLOPS. The wait for global memory before each tile remains: 40 to 48 TFLOPS.
// Measured   3390 us, 40.54 TFLOPS, 79.7 % of cuBLAS (NVIDIA H200, 4096 cubed)
// Shown by   smsp__inst_executed_pipe_lsu.sum
// Profiled   176.3 M; step 04: 604.5 M
// Needs      m and n multiples of 128, k of 16.
#include "kernels/launch.h"
#include "ladder/gemm/f32_tile.cuh"

namespace tessera::ladder {
namespace {

__global__ void __launch_bounds__(F32Tile::kThreads, 2) gemm_vectorised_kernel(Operands<float> p) {
  __shared__ F32Tile::Stage stage;
  const int64_t first_row = static_cast<int64_t>(blockIdx.y) * F32Tile::kTile;
  const int64_t first_col = static_cast<int64_t>(blockIdx.x) * F32Tile::kTile;
  const float* a = p.a + first_row * p.k;
  const float* b = p.b + first_col * p.k;
  float sums[8][8] = {};
  for (int k = 0; k < p.k; k += F32Tile::kTileK) {
    const F32Tile::Carried next_a = F32Tile::fetch(a + k, p.k);
    const F32Tile::Carried next_b = F32Tile::fetch(b + k, p.k);
    F32Tile::put(stage.a, next_a);
    F32Tile::put(stage.b, next_b);
    __syncthreads();
    F32Tile::multiply(stage, sums);
    __syncthreads();
  }
  F32Tile::store(sums, p.d + first_row * p.n + first_col, p.n);
}

}  // namespace

void launch_vectorised(const Problem& problem, const Context& ctx) {
  const auto num_tiles = [](int size) { return static_cast<unsigned>(size / F32Tile::kTile); };
  kernels::launch(
      gemm_vectorised_kernel,
      {.grid = dim3(num_tiles(problem.n), num_tiles(problem.m)), .block = dim3(F32Tile::kThreads)},
      Operands<float>(problem), ctx);
}

}  // namespace tessera::ladder
