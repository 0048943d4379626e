// What the Hopper kernel of matrix products reads, and how its blocks walk the tiles.
// SPDX-License-Identifier: MIT
#pragma once

#include <cuda.h>

#include <cstdint>
#include <type_traits>

#include "kernels/gemm/epilogue.cuh"
#include "kernels/gemm/normed_row.cuh"
#include "kernels/gemm/sm90/plan.h"
#include "kernels/gemm/sm90/tile_scales.cuh"
#include "tile/pipeline.cuh"

namespace tessera::kernels {

// What the kernel reads: plain data. The fields that the producer reads before its first copy come
// first, so that they share few lines of the constant cache.
struct Sm90Params {
  Sm90Layout layout;
  int num_k_blocks;  // at least 1
  int num_m_tiles;   // with shares_b: of pairs of tiles
  int num_n_tiles;
  int num_tiles;    // of all batches
  int group;        // tiles of m walked before the next tile of n, to reuse what is in L2
  int a_rows;       // rows in a slot of A
  int num_early;    // stages of B to load before the kernel in front has finished; 0: none
  int num_by_hand;  // of these, stages whose A the consumers load without TMA
  int num_slabs;    // of k
  int cluster;      // blocks in a cluster, which share a tile or B
  bool shares_b;    // each block of a cluster of two loads half of B for both
  bool is_b_batched;
  bool keeps_a;     // A is made by the consumers and stays: the ring holds B alone
  CUtensorMap b;    // [batch, n, k]
  CUtensorMap a;    // [batch, m, k]
  CUtensorMap out;  // [batch, m, columns of out]; read only where layout.store_bytes > 0
  // A's address, for consumers that load its first stages without TMA.
  const char* a_data;
  int64_t a_row_bytes;
  int64_t a_batch_bytes;
  BlockScales scales;  // read by tiles that promote
  EpilogueParams epilogue;
  NormedParams normed;  // read by one warpgroup
};
static_assert(std::is_trivially_copyable_v<Sm90Params>);

using Sm90Ring = tile::Pipeline<kMaxStages>;

// The tile a block works on.
struct Sm90Place {
  int m_tile;
  int n_tile;
  int batch;
};

// Tile number `index` of the walk: `group` tiles of m, then the next tile of n, then the next
// group.
__device__ inline Sm90Place place_of(const Sm90Params& p, int index, int rank) {
  if (p.num_tiles == p.num_n_tiles) {  // one row of tiles: skip the divisions
    return {p.shares_b ? rank : 0, index, 0};
  }
  const int per_batch = p.num_m_tiles * p.num_n_tiles;
  const int batch = index / per_batch;
  index -= batch * per_batch;
  const int group = index / (p.group * p.num_n_tiles);
  const int first = group * p.group;
  const int size = min(p.group, p.num_m_tiles - first);
  index -= first * p.num_n_tiles;
  const int m_tile = first + index % size;
  const int n_tile = index / size;
  return {p.shares_b ? 2 * m_tile + rank : m_tile, n_tile, batch};
}

// Clusters take tiles in turn: cluster c of C has tiles c, c + C, c + 2 C, ...
struct Sm90Tiles {
  int first;
  int step;
};
__device__ inline Sm90Tiles tiles_of(const Sm90Params& p) {
  return {static_cast<int>(blockIdx.x) / p.cluster, static_cast<int>(gridDim.x) / p.cluster};
}

// The blocks of k that this thread block multiplies: all of them, or its half if k is split.
struct Sm90Range {
  int begin;
  int end;
};
template <class Tile>
__device__ Sm90Range k_range(const Sm90Params& p, int rank) {
  if constexpr (Tile::kSplits == 1) return {0, p.num_k_blocks};
  return {rank * p.num_k_blocks / Tile::kSplits, (rank + 1) * p.num_k_blocks / Tile::kSplits};
}

}  // namespace tessera::kernels
