// The sum of a tile whose k two blocks of a cluster have split.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "tile/ptx/barrier.cuh"
#include "tile/ptx/cluster.cuh"
#include "tile/ptx/shared.cuh"
#include "tile/unroll.cuh"

namespace tessera::kernels {

// Adds the partial sums of the two blocks that split k. Each block holds a whole tile of them and
// adds up half of the columns: it reads the other block's half from that block's shared memory, at
// some 14 bytes per cycle. A sum of two has the same bits in either order, and neither a workspace
// nor a counter is needed. Called by all consumers of both blocks; `buffer` is the ring, now
// unused: 2 bytes for each element of the tile.
template <class Tile, int kRegs>
__device__ void fold_splits(const float (&d)[kRegs], float (&part)[kRegs / 2], uint32_t buffer,
                            int rank) {
  constexpr int kConsumers = 128 * Tile::kWarpgroups;
  constexpr int kFours = kRegs / 8;  // groups of four registers in half a tile
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
  tile::ptx::cluster_arrive_relaxed();  // a block may not exit while the other reads its memory
  tile::ptx::cluster_wait();
}

}  // namespace tessera::kernels
