// Where a warpgroup is in its tile.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/attention/sm90/shared.cuh"

namespace tessera::kernels {

template <class Tile>
struct TileFlow {
  int warpgroup;
  const PrefillWork* work;
  int block;  // whose weights there are
  int next;   // negative: none
  bool is_full;
  bool is_first;
  // Of the range that holds `next`, kept here as most steps stay in it.
  int range_begin;
  int full_begin;
  int full_end;

  __device__ __forceinline__ void begin(const PrefillWork* tile) {
    work = tile;
    next = work->blocks.first();
    enter_range();
    step();
    is_first = true;
  }

  __device__ __forceinline__ void step() {
    block = next;
    is_full = block >= full_begin && block < full_end;
    if (block > range_begin) {
      next = block - 1;
    } else {
      next = work->blocks.before(block);
      if (next >= 0) enter_range();
    }
  }

  // Whether the warpgroup's rows see nothing of the block, as upper rows of the first blocks under
  // a causal mask. The last block is taken all the same: something must come of the tile.
  __device__ __forceinline__ bool skips() const {
    return Tile::kSkipsBlocks && next >= 0 && !own_blocks().has(block);
  }

 private:
  // What the warpgroup's rows see.
  __device__ __forceinline__ const BlockRanges& own_blocks() const {
    if constexpr (Tile::kSkipsBlocks) {
      return work->of_warpgroup[warpgroup];
    } else {
      return work->blocks;
    }
  }

  // Blocks that are full in the other range alone count as mixed: a mask does no harm.
  __device__ __forceinline__ void enter_range() {
    const BlockRanges& all = work->blocks;
    const bool is_x = next >= all.seen_begin.x && next < all.seen_end.x;
    const BlockRanges& own = own_blocks();
    range_begin = is_x ? all.seen_begin.x : all.seen_begin.y;
    full_begin = is_x ? own.full_begin.x : own.full_begin.y;
    full_end = is_x ? own.full_end.x : own.full_end.y;
  }
};

}  // namespace tessera::kernels
