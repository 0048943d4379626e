// Which tiles of the product a block computes, and in which order.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/gemm/sm90/params.h"
#include "tile/pipeline.cuh"

namespace tessera::kernels {

using Sm90Ring = tile::Pipeline<kMaxStages>;

// A tile of this block.
struct Sm90Place {
  int m_tile;
  int n_tile;
  int batch;
};

// The cluster's index-th tile: `group` tiles of m, then the next tile of n, then the next group.
__device__ inline Sm90Place place_of(const Sm90Params& p, int index, int rank) {
  if (p.num_tiles == p.num_n_tiles) {  // one row of tiles: no divisions before the first copy
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

// The tiles of a block: every cluster takes one, then the next that none has taken.
struct Sm90Tiles {
  int first;
  int step;
};
__device__ inline Sm90Tiles tiles_of(const Sm90Params& p) {
  return {static_cast<int>(blockIdx.x) / p.cluster, static_cast<int>(gridDim.x) / p.cluster};
}

// The blocks of k of one tile that this block multiplies: all, or the rank's part of them.
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
