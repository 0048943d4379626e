// The matrix product on Hopper: TMA feeds a ring, warpgroups multiply from it, one kernel for
// every m.
// SPDX-License-Identifier: MIT
//
// One warp produces: it fills the ring with slabs of A and B, far ahead. One or two warpgroups
// consume: each holds 64 rows by kCols columns of the product in registers. Blocks are persistent
// and walk the tiles in an order that keeps what they share in L2; in a cluster of two, each block
// loads half of the operand they share and multicasts it.
//
// k is walked from the front in steps of 16 into one accumulator, whatever the tile: a row of A
// gives the same bits in any m, and the choice of tile is free. Tiles that split k (split.cuh) are
// for those who do not ask for that.
#pragma once

#include "kernels/gemm/sm90/consume.cuh"
#include "kernels/gemm/sm90/produce.cuh"
#include "tile/ptx/cluster.cuh"
#include "tile/ptx/warp.cuh"

namespace tessera::kernels {

template <class T, class Tile>
__global__ void __launch_bounds__(Tile::kThreads, 1)
    gemm_sm90_kernel(const __grid_constant__ Sm90Params p) {
  extern __shared__ __align__(1024) char dynamic[];
  const uint32_t shared = tile::ptx::shared_address(dynamic);
  Sm90Ring ring(*reinterpret_cast<Sm90Ring::Barriers*>(dynamic + p.layout.barriers()));
  const int rank = p.cluster > 1 ? static_cast<int>(tile::ptx::cluster_rank()) : 0;
  // By way of a shuffle the compiler learns that a warp agrees on it, and keeps the descriptors
  // that depend on it in uniform registers, where wgmma wants them.
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0);
  const Sm90Producer<Tile> producer{p, ring, shared, rank};
  int num_early = 0;
  if (warp == 4 * Tile::kWarpgroups) {
    ring.init_by_warp(1, Tile::kWarpgroups * (p.shares_b ? 2 : 1), p.layout.num_stages);
    __syncwarp();
    // Alone, a block need not wait for anyone to fill its own shared memory.
    if (!p.shares_b && threadIdx.x % 32 == 0) num_early = producer.start_early();
  }
  if (p.shares_b) {
    tile::ptx::cluster_arrive();
    tile::ptx::cluster_wait();
  } else {
    __syncthreads();
  }
  if (warp >= 4 * Tile::kWarpgroups) {
    if constexpr (Tile::kMovesRegisters) tile::ptx::setmaxnreg_dec<40>();
    if (threadIdx.x == 128 * Tile::kWarpgroups) {
      if (p.shares_b) num_early = producer.start_early();
      producer.run(num_early);
    }
  } else {
    if constexpr (Tile::kMovesRegisters) tile::ptx::setmaxnreg_inc<232>();
    Sm90Consumer<T, Tile>{p, ring, shared, warp / 4}.run(rank);
  }
}

}  // namespace tessera::kernels
