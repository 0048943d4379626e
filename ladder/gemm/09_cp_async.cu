// cp.async fills a ring of three stages while the tensor cores work on the oldest.
// SPDX-License-Identifier: MIT
//
// Changed    Tiles go from global to shared memory without passing through registers, two stages
//            ahead; one barrier per tile remains, and threads seldom wait at it.
// Cause      Step 08 left the tensor cores idle from the issue of a tile's loads until its last
//            byte arrived. Here that latency is hidden behind two tiles of products.
// Predicted  A tile is 4 x 128 clocks of ldmatrix beside 4 x 200 of mma.sync, in two blocks that
//            alternate: the tensor pipe is the limit, at two thirds of 989: 500 to 600 TFLOPS. To
//            go beyond that, the instruction itself must change.
// Measured   389.4 us, 352.90 TFLOPS, 53.6 % of cuBLAS (NVIDIA H200, 4096 cubed)
// Shown by   sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active
// Profiled   67.8 %; step 08: 32.7 %
// Needs      m and n multiples of 128, k of 64.
#include "kernels/launch.h"
#include "ladder/gemm/mma_tile.cuh"
#include "tile/ptx/address.cuh"
#include "tile/ptx/cp_async.cuh"

namespace tessera::ladder {
namespace {

constexpr int kStages = 3;  // 96 KB: two blocks still fit an SM

__device__ void load_tile(uint32_t tile, const Bf16* data, int num_k) {
  MmaTile::for_each_chunk([&](uint32_t offset, int row, int k) {
    tile::ptx::cp_async<16>(tile + offset, data + static_cast<int64_t>(row) * num_k + k);
  });
}

__global__ void __launch_bounds__(MmaTile::kThreads, 2) gemm_cp_async_kernel(Operands<Bf16> p) {
  extern __shared__ __align__(1024) unsigned char shared[];
  auto* stages = reinterpret_cast<MmaTile::Stage*>(shared);
  const int64_t first_row = static_cast<int64_t>(blockIdx.y) * MmaTile::kTile;
  const int64_t first_col = static_cast<int64_t>(blockIdx.x) * MmaTile::kTile;
  const int num_tiles = p.k / MmaTile::kTileK;

  // One group a tile, empty past the end, so that the wait below always counts the same.
  const auto fetch = [&](int i) {
    if (i < num_tiles) {
      MmaTile::Stage& stage = stages[i % kStages];
      const int k = i * MmaTile::kTileK;
      load_tile(tile::ptx::shared_address(stage.a), p.a + first_row * p.k + k, p.k);
      load_tile(tile::ptx::shared_address(stage.b), p.b + first_col * p.k + k, p.k);
    }
    tile::ptx::cp_async_commit_group();
  };

  MmaTile::Sums sums = {};
  for (int i = 0; i < kStages - 1; ++i) fetch(i);
  for (int i = 0; i < num_tiles; ++i) {
    tile::ptx::cp_async_wait_group<kStages - 2>();  // this thread's part of tile i has landed
    __syncthreads();  // everyone's part has, and everyone has left the stage that fetch fills
    fetch(i + kStages - 1);
    const MmaTile::Stage& stage = stages[i % kStages];
    MmaTile::multiply(tile::ptx::shared_address(stage.a), tile::ptx::shared_address(stage.b), sums);
  }
  MmaTile::store(sums, p.d + first_row * p.n + first_col, p.n);
}

}  // namespace

void launch_cp_async(const Problem& problem, const Context& ctx) {
  const auto num_tiles = [](int size) { return static_cast<unsigned>(size / MmaTile::kTile); };
  kernels::launch(gemm_cp_async_kernel,
                  {.grid = dim3(num_tiles(problem.n), num_tiles(problem.m)),
                   .block = dim3(MmaTile::kThreads),
                   .shared_bytes = kStages * sizeof(MmaTile::Stage)},
                  Operands<Bf16>(problem), ctx);
}

}  // namespace tessera::ladder
