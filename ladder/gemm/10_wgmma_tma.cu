// WGMMA reads both operands from shared memory, and one thread asks TMA to bring them there.
// SPDX-License-Identifier: MIT
//
// Changed    wgmma takes descriptors of swizzled tiles instead of fragments; a tile is two bulk
//            copies that one thread starts and an mbarrier awaits. The pipeline of step 09 is gone
//            again: one stage is filled, multiplied, and filled again.
// Cause      Operands no longer pass through registers: no ldmatrix, no address arithmetic, no
//            chunks to copy. And only wgmma drives the tensor cores at their full rate.
// Predicted  A tile is 128 x 128 x 64 products, 512 clocks, after a copy of 32 KB that takes about
//            1000. With 128 sums per thread two blocks fit on an SM and fill each other's gaps: at
//            best 2 * 512 of every 1512 clocks, 670 of 989 TFLOPS, and less whenever both multiply
//            or both wait: 400 to 500. Without a pipeline no more than step 09 with one.
// Measured   297.2 us, 462.50 TFLOPS, 70.3 % of cuBLAS (NVIDIA H200, 4096 cubed)
// Shown by   sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active
// Profiled   46.1 %; step 09: 67.8 %
// Needs      m and n multiples of 128, k of 64; a GPU of compute capability 9.0.
#include "kernels/launch.h"
#include "ladder/gemm/wgmma_tile.cuh"
#include "tile/ptx/mbarrier.cuh"
#include "tile/ptx/tma_tensor.cuh"

namespace tessera::ladder {
namespace {

constexpr int kTile = 128;  // of m and of n; one warpgroup multiplies two halves of 64 rows
constexpr int kHalfBytes = kGroupRows * kRowBytes;

__global__ void __launch_bounds__(kGroupThreads, 2)
    gemm_wgmma_tma_sm90_kernel(const __grid_constant__ WgmmaParams p) {
  __shared__ OperandStage<kTile, kTile> stage;
  __shared__ alignas(8) uint64_t barrier_storage;
  const uint32_t a_tile = tile::ptx::shared_address(stage.a.bytes);
  const uint32_t b_tile = tile::ptx::shared_address(stage.b.bytes);
  const uint32_t barrier = tile::ptx::shared_address(&barrier_storage);
  const int row = static_cast<int>(blockIdx.y) * kTile;
  const int col = static_cast<int>(blockIdx.x) * kTile;
  if (threadIdx.x == 0) {
    tile::ptx::mbarrier_init(barrier, 1);
    tile::ptx::fence_mbarrier_init();
  }
  __syncthreads();

  float sums[2][kTile / 2];
  uint32_t phase = 0;
  for (int k = 0; k < p.k; k += kStageK) {
    if (threadIdx.x == 0) {
      tile::ptx::mbarrier_arrive_expect_tx(barrier, stage.kBytes);
      tile::ptx::tensor_load(a_tile, &p.a, tile::ptx::Coord{k, row}, barrier);
      tile::ptx::tensor_load(b_tile, &p.b, tile::ptx::Coord{k, col}, barrier);
    }
    tile::ptx::mbarrier_wait(barrier, phase);
    phase ^= 1;
    tile::ptx::wgmma_fence();
    issue_products(sums[0], a_tile, b_tile, k > 0);
    issue_products(sums[1], a_tile + kHalfBytes, b_tile, k > 0);
    tile::ptx::wgmma_commit_group();
    tile::ptx::wgmma_wait_group<0>();
    __syncthreads();  // all four warps have read the stage before it is filled again
  }
  tile::ptx::wgmma_hold(sums[0]);
  tile::ptx::wgmma_hold(sums[1]);
  Bf16* d = p.d + static_cast<int64_t>(row) * p.n + col;
  store_pairs(sums[0], d, p.n);
  store_pairs(sums[1], d + static_cast<int64_t>(kGroupRows) * p.n, p.n);
}

}  // namespace

void launch_wgmma_tma(const Problem& problem, const Context& ctx) {
  const auto num_tiles = [](int size) { return static_cast<unsigned>(size / kTile); };
  kernels::launch(
      gemm_wgmma_tma_sm90_kernel,
      {.grid = dim3(num_tiles(problem.n), num_tiles(problem.m)), .block = dim3(kGroupThreads)},
      wgmma_params(problem, kTile, kTile), ctx);
}

}  // namespace tessera::ladder
