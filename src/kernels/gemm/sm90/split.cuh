// Partial products of one tile, folded through the shared memory of two blocks.
// SPDX-License-Identifier: MIT
//
// Each block of the cluster has multiplied its half of k and holds a whole tile of partial sums.
// Each folds half of the columns: a sum of two, which has the same bits in either order, without
// workspace and without a counter in memory. What crosses from one SM to the other, at some 14
// bytes a cycle, is half a tile and no more.
#pragma once

#include "tile/ptx/barrier.cuh"
#include "tile/ptx/cluster.cuh"
#include "tile/ptx/shared.cuh"
#include "tile/unroll.cuh"

namespace tessera::kernels {

// All consumers of both blocks. `buffer` is the ring, which nobody needs any more: 2 bytes for
// every element of the tile. A thread's registers lie in fours, and the fours of a warp side by
// side.
template <class Tile, int kRegs>
__device__ void fold_splits(const float (&d)[kRegs], float (&part)[kRegs / 2], uint32_t buffer,
                            int rank) {
  constexpr int kConsumers = 128 * Tile::kWarpgroups;
  constexpr int kFours = kRegs / 8;  // of a half
  static_assert(kRegs % 8 == 0);
  const uint32_t mine = buffer + threadIdx.x * 16;
  tile::ptx::bar_sync(1, kConsumers);  // the other warpgroup may still read operands there
  TESSERA_UNROLL
  for (int four = 0; four < kFours; ++four) {
    uint32_t theirs[4];
    TESSERA_UNROLL
    for (int i = 0; i < 4; ++i) {
      const float low = d[4 * four + i];
      const float high = d[kRegs / 2 + 4 * four + i];
      part[4 * four + i] = rank == 0 ? low : high;
      theirs[i] = __float_as_uint(rank == 0 ? high : low);
    }
    tile::ptx::store_shared(mine + four * kConsumers * 16,
                            make_uint4(theirs[0], theirs[1], theirs[2], theirs[3]));
  }
  tile::ptx::cluster_arrive();
  tile::ptx::cluster_wait();
  const uint32_t peer = tile::ptx::mapa(mine, static_cast<uint32_t>(rank ^ 1));
  float4 sums[kFours];
  TESSERA_UNROLL
  for (int four = 0; four < kFours; ++four) {
    sums[four] = tile::ptx::load_cluster_v4(peer + four * kConsumers * 16);
  }
  TESSERA_UNROLL
  for (int four = 0; four < kFours; ++four) {
    part[4 * four] += sums[four].x;
    part[4 * four + 1] += sums[four].y;
    part[4 * four + 2] += sums[four].z;
    part[4 * four + 3] += sums[four].w;
  }
  tile::ptx::cluster_arrive_relaxed();  // nobody leaves, or writes there again, while another reads
  tile::ptx::cluster_wait();
}

}  // namespace tessera::kernels
