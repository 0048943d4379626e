// One warp brings tiles, two warpgroups multiply them, and a ring of mbarriers keeps them apart.
// SPDX-License-Identifier: MIT
//
// Changed    A producer runs up to four stages ahead of two consumer warpgroups, which share a tile
//            of 128 x 256; the producer's registers go to the consumers, 128 sums a thread.
// Cause      In step 10 nothing was loaded while the block multiplied. Here a consumer's loop is a
//            wait, four wgmma and an arrival, and while one warpgroup waits the other multiplies.
//            The larger tile reads 48 KB for 2.1 M products, three quarters of what two tiles of
//            128 x 128 would.
// Predicted  A stage is 1024 clocks of products for 48 KB: 48 bytes per clock and SM, where L2
//            delivers at most 64. 512 tiles on 132 SMs are 3.88 waves, 97 %. Filling and draining
//            the ring and storing the sums leave the tensor cores idle for 5 us of every 40: 600 to
//            650 TFLOPS.
// Measured   230.5 us, 596.20 TFLOPS, 90.6 % of cuBLAS (NVIDIA H200, 4096 cubed)
// Shown by   sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active
// Profiled   81.7 %; step 10: 46.1 %
// Needs      m a multiple of 128, n of 256, k of 64; a GPU of compute capability 9.0.
#include "kernels/launch.h"
#include "ladder/gemm/wgmma_tile.cuh"
#include "tile/pipeline.cuh"
#include "tile/ptx/tma_tensor.cuh"
#include "tile/ptx/warp.cuh"

namespace tessera::ladder {
namespace {

constexpr int kTileM = 128;
constexpr int kTileN = 256;
constexpr int kStages = 4;
constexpr int kConsumerWarps = 8;
constexpr int kThreads = 3 * kGroupThreads;  // the first warpgroup produces

using Ring = tile::Pipeline<kStages>;

struct Storage {
  OperandStage<kTileM, kTileN> stages[kStages];
  Ring::Barriers barriers;
};

__device__ void produce(const WgmmaParams& p, Storage& storage, const Ring& ring, int row,
                        int col) {
  Ring::State state;
  for (int k = 0; k < p.k; k += kStageK, state.advance()) {
    auto& stage = storage.stages[state.index];
    ring.producer_acquire(state);
    ring.producer_expect(state, stage.kBytes);
    tile::ptx::tensor_load(tile::ptx::shared_address(stage.a.bytes), &p.a, tile::ptx::Coord{k, row},
                           ring.full(state));
    tile::ptx::tensor_load(tile::ptx::shared_address(stage.b.bytes), &p.b, tile::ptx::Coord{k, col},
                           ring.full(state));
  }
}

// Warpgroup `half` of the consumers multiplies rows 64 * half on.
__device__ void consume(const WgmmaParams& p, Storage& storage, const Ring& ring, int half,
                        float (&sums)[kTileN / 2]) {
  Ring::State state;
  for (int k = 0; k < p.k; k += kStageK, state.advance()) {
    auto& stage = storage.stages[state.index];
    const uint32_t a = tile::ptx::shared_address(stage.a.bytes + half * kGroupRows * kRowBytes);
    ring.consumer_wait(state);
    tile::ptx::wgmma_fence();
    issue_products(sums, a, tile::ptx::shared_address(stage.b.bytes), k > 0);
    tile::ptx::wgmma_commit_group();
    tile::ptx::wgmma_wait_group<0>();
    if (threadIdx.x % 32 == 0) ring.consumer_release(state);
  }
  tile::ptx::wgmma_hold(sums);
}

__global__ void __launch_bounds__(kThreads, 1)
    gemm_warp_specialised_sm90_kernel(const __grid_constant__ WgmmaParams p) {
  extern __shared__ __align__(1024) unsigned char shared[];
  Storage& storage = *reinterpret_cast<Storage*>(shared);
  Ring ring(storage.barriers);
  const int row = static_cast<int>(blockIdx.y) * kTileM;
  const int col = static_cast<int>(blockIdx.x) * kTileN;
  if (threadIdx.x == 0) ring.init(1, kConsumerWarps);
  __syncthreads();
  if (threadIdx.x < kGroupThreads) {
    tile::ptx::setmaxnreg_dec<40>();
    if (threadIdx.x == 0) produce(p, storage, ring, row, col);
  } else {
    tile::ptx::setmaxnreg_inc<232>();
    const int half = static_cast<int>(threadIdx.x) / kGroupThreads - 1;
    float sums[kTileN / 2];
    consume(p, storage, ring, half, sums);
    store_pairs(sums, p.d + static_cast<int64_t>(row + half * kGroupRows) * p.n + col, p.n);
  }
}

}  // namespace

void launch_warp_specialised(const Problem& problem, const Context& ctx) {
  const auto num_cols = static_cast<unsigned>(problem.n / kTileN);
  const auto num_rows = static_cast<unsigned>(problem.m / kTileM);
  kernels::launch(
      gemm_warp_specialised_sm90_kernel,
      {.grid = dim3(num_cols, num_rows), .block = dim3(kThreads), .shared_bytes = sizeof(Storage)},
      wgmma_params(problem, kTileM, kTileN), ctx);
}

}  // namespace tessera::ladder
