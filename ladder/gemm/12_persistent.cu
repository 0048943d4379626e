// A block for each SM walks over many tiles: the next tile's loads run under this one's store.
// SPDX-License-Identifier: MIT
//
// Changed    The grid is as many blocks as SMs, and each takes every 132nd tile in an order that
//            keeps concurrent tiles in a square. Sums leave through shared memory and one TMA
//            store.
// Cause      The ring does not run empty between two tiles: while the consumers round and store,
//            the producer fills the stages again. The store itself is 128 bytes per row instead of
//            16, and nobody waits for it. A square of tiles reads 33 MB per wave where rows of
//            tiles read 42.
// Predicted  Step 11 spends 5 us between tiles of 35 us. Launch, first loads and scattered stores
//            disappear; rounding into shared memory remains, about 1 us: some 10 % more, 660 to 700
//            TFLOPS. The staging buffer leaves room for three stages, still 2000 clocks ahead.
// Measured   203.2 us, 676.50 TFLOPS, 102.8 % of cuBLAS (NVIDIA H200, 4096 cubed)
// Shown by   sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active
// Profiled   94.8 %; step 11: 81.7 %
// Needs      m a multiple of 128, n of 256, k of 64; a GPU of compute capability 9.0.
#include <algorithm>

#include "kernels/launch.h"
#include "ladder/gemm/persistent_tile.cuh"
#include "tessera/core/device.h"
#include "tile/ptx/warp.cuh"

namespace tessera::ladder {
namespace {

constexpr int kBand = 16;  // tiles along m: 2048 rows, as wide as the 8 tiles of n beside them

// Calls f(row, col) for each tile of this block. Producer and consumers walk the same list.
template <class F>
__device__ __forceinline__ void for_each_tile(const WgmmaParams& p, const F& f) {
  const int num_rows = p.m / kTileM;
  const int num_cols = p.n / kTileN;
  for (int i = static_cast<int>(blockIdx.x); i < num_rows * num_cols;
       i += static_cast<int>(gridDim.x)) {
    const TileIndex at = tile_at(i, num_rows, num_cols, kBand);
    f(at.row * kTileM, at.col * kTileN);
  }
}

__device__ __forceinline__ void produce(const WgmmaParams& p, Storage& storage, const Ring& ring) {
  Ring::State state;
  for_each_tile(p, [&](int row, int col) {
    for (int k = 0; k < p.k; k += kStageK, state.advance()) {
      auto& stage = storage.stages[state.index];
      ring.producer_acquire(state);
      ring.producer_expect(state, stage.kBytes);
      tile::ptx::tensor_load(tile::ptx::shared_address(stage.a.bytes), &p.a,
                             tile::ptx::Coord{k, row}, ring.full(state));
      tile::ptx::tensor_load(tile::ptx::shared_address(stage.b.bytes), &p.b,
                             tile::ptx::Coord{k, col}, ring.full(state));
    }
  });
}

__device__ __forceinline__ void consume(const WgmmaParams& p, Storage& storage, const Ring& ring,
                                        int half) {
  Ring::State state;
  float sums[kTileN / 2];
  for_each_tile(p, [&](int row, int col) {
    multiply_tile(sums, p.k, storage, ring, state, half, [&](const Ring::State& read) {
      if (threadIdx.x % 32 == 0) ring.consumer_release(read);
    });
    store_staged(sums, storage.staging[half], &p.d_map, row + half * kGroupRows, col, 1 + half);
  });
  finish_stores();
}

__global__ void __launch_bounds__(kThreads, 1)
    gemm_persistent_sm90_kernel(const __grid_constant__ WgmmaParams p) {
  extern __shared__ __align__(1024) unsigned char shared[];
  Storage& storage = *reinterpret_cast<Storage*>(shared);
  Ring ring(storage.barriers);
  if (threadIdx.x == 0) ring.init(1, kConsumerWarps);
  __syncthreads();
  if (threadIdx.x < kGroupThreads) {
    tile::ptx::setmaxnreg_dec<40>();
    if (threadIdx.x == 0) produce(p, storage, ring);
  } else {
    tile::ptx::setmaxnreg_inc<232>();
    consume(p, storage, ring, static_cast<int>(threadIdx.x) / kGroupThreads - 1);
  }
}

}  // namespace

void launch_persistent(const Problem& problem, const Context& ctx) {
  const int num_tiles = problem.m / kTileM * (problem.n / kTileN);
  const int num_blocks = std::min(num_tiles, device_info(cuda_device()).num_sms);
  kernels::launch(gemm_persistent_sm90_kernel,
                  {.grid = dim3(static_cast<unsigned>(num_blocks)),
                   .block = dim3(kThreads),
                   .shared_bytes = sizeof(Storage)},
                  wgmma_params(problem, kTileM, kTileN), ctx);
}

}  // namespace tessera::ladder
