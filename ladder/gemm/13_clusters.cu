// Two SMs as a cluster: each fetches half of the shared operand and multicasts it to both.
// SPDX-License-Identifier: MIT
//
// Changed    Blocks come in pairs, one tile above the other, so both need the same 256 rows of b.
//            Each loads 128 of them into both; a stage is free when the consumers of both blocks
//            have left it.
// Cause      Of 48 KB a stage, 32 were the same in both SMs. Now an SM asks L2 for 32 KB: its own
//            tile of a and its half of b.
// Predicted  At 700 TFLOPS step 12 read 512 * 64 stages of 48 KB in 196 us, 8.2 TB/s, close to the
//            limit of L2. A third less is 5.5 TB/s and saves power for a higher clock: 5 to 8 %
//            more, 720 to 760 TFLOPS.
// Measured   210.7 us, 652.20 TFLOPS, 99.1 % of cuBLAS (NVIDIA H200, 4096 cubed)
// Shown by   lts__t_sectors_op_read.sum
// Profiled   1.12 GB; step 12: 1.00 GB
// Needs      m, n multiples of 256, k of 64; a GPU of compute capability 9.0.
#include <algorithm>

#include "kernels/launch.h"
#include "ladder/gemm/persistent_tile.cuh"
#include "tessera/core/device.h"
#include "tile/ptx/cluster.cuh"
#include "tile/ptx/warp.cuh"

namespace tessera::ladder {
namespace {

constexpr int kCluster = 2;                // blocks, along m
constexpr int kShare = kTileN / kCluster;  // rows of b that one block fetches
constexpr int kBand = 8;                   // pairs of tiles along m

// Calls f(row, col) for each tile of this block; its partner gets the tile above or below.
template <class F>
__device__ __forceinline__ void for_each_tile(const WgmmaParams& p, const F& f) {
  const int num_rows = p.m / (kCluster * kTileM);
  const int num_cols = p.n / kTileN;
  const int rank = static_cast<int>(tile::ptx::cluster_rank());
  for (int i = static_cast<int>(blockIdx.x) / kCluster; i < num_rows * num_cols;
       i += static_cast<int>(gridDim.x) / kCluster) {
    const TileIndex at = tile_at(i, num_rows, num_cols, kBand);
    f((at.row * kCluster + rank) * kTileM, at.col * kTileN);
  }
}

__device__ __forceinline__ void produce(const WgmmaParams& p, Storage& storage, const Ring& ring) {
  constexpr uint16_t kEveryBlock = (1 << kCluster) - 1;
  const int share = static_cast<int>(tile::ptx::cluster_rank()) * kShare;
  Ring::State state;
  for_each_tile(p, [&](int row, int col) {
    for (int k = 0; k < p.k; k += kStageK, state.advance()) {
      auto& stage = storage.stages[state.index];
      ring.producer_acquire(state);
      ring.producer_expect(state, stage.kBytes);  // the partner's share included
      tile::ptx::tensor_load(tile::ptx::shared_address(stage.a.bytes), &p.a,
                             tile::ptx::Coord{k, row}, ring.full(state));
      tile::ptx::tensor_load_multicast(tile::ptx::shared_address(stage.b.bytes + share * kRowBytes),
                                       &p.b, tile::ptx::Coord{k, col + share}, ring.full(state),
                                       kEveryBlock);
    }
  });
}

__device__ __forceinline__ void consume(const WgmmaParams& p, Storage& storage, const Ring& ring,
                                        int half) {
  Ring::State state;
  float sums[kTileN / 2];
  for_each_tile(p, [&](int row, int col) {
    multiply_tile(sums, p.k, storage, ring, state, half, [&](const Ring::State& read) {
      const uint32_t lane = threadIdx.x % 32;
      // To both blocks that fill the stage. Only the tensor cores have read it, so no fence is
      // needed.
      if (lane < kCluster) ring.consumer_release_relaxed(read, lane);
    });
    store_staged(sums, storage.staging[half], &p.d_map, row + half * kGroupRows, col, 1 + half);
  });
  finish_stores();
}

__global__ void __launch_bounds__(kThreads, 1)
    gemm_clusters_sm90_kernel(const __grid_constant__ WgmmaParams p) {
  extern __shared__ __align__(1024) unsigned char shared[];
  Storage& storage = *reinterpret_cast<Storage*>(shared);
  Ring ring(storage.barriers);
  if (threadIdx.x == 0) ring.init(1, kCluster * kConsumerWarps);
  tile::ptx::cluster_arrive();
  tile::ptx::cluster_wait();
  if (threadIdx.x < kGroupThreads) {
    tile::ptx::setmaxnreg_dec<40>();
    if (threadIdx.x == 0) produce(p, storage, ring);
    __syncwarp();
  } else {
    tile::ptx::setmaxnreg_inc<232>();
    consume(p, storage, ring, static_cast<int>(threadIdx.x) / kGroupThreads - 1);
    __syncwarp();
  }
  // No block may exit while the other may still arrive on its barriers: wait for all releases.
  tile::ptx::cluster_arrive();
  tile::ptx::cluster_wait();
}

}  // namespace

void launch_clusters(const Problem& problem, const Context& ctx) {
  const int num_pairs = problem.m / (kCluster * kTileM) * (problem.n / kTileN);
  const int num_clusters = std::min(num_pairs, device_info(cuda_device()).num_sms / kCluster);
  kernels::launch(gemm_clusters_sm90_kernel,
                  {.grid = dim3(static_cast<unsigned>(kCluster * num_clusters)),
                   .block = dim3(kThreads),
                   .shared_bytes = sizeof(Storage),
                   .cluster = kCluster},
                  wgmma_params(problem, kTileM, kShare), ctx);
}

}  // namespace tessera::ladder
