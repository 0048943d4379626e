// Who works on what: blocks walk the tiles in an order that is fair and keeps keys in L2.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/attention/mask.cuh"
#include "kernels/attention/sm90/params.h"
#include "kernels/attention/sm90/shared.cuh"

namespace tessera::kernels {

// The r-th tile of a block. Rounds go to and fro: where tiles get shorter along the order, who had
// the longest of one round has the shortest of the next.
__device__ inline int tile_of_round(int round) {
  const int num_blocks = static_cast<int>(gridDim.x);
  const int block = static_cast<int>(blockIdx.x);
  return round * num_blocks + (round % 2 == 0 ? block : num_blocks - 1 - block);
}

// Rounded up.
__device__ inline int divide_up(int value, int by) { return (value + by - 1) / by; }

struct TilePlace {
  int sequence;
  int head;
  int m_tile;
};

// Heads are walked group by group, so that what a group reads stays in L2; within a group the last
// tile of every head comes first: where masks are causal, the longest.
__device__ inline TilePlace batched_place(const Sm90PrefillParams& p, int index) {
  const int num_heads = p.common.num_heads;
  const int in_group = index % (p.group * p.m_tiles);
  const int first = index / (p.group * p.m_tiles) * p.group;
  const int group = min(p.group, num_heads * p.common.batch - first);
  const int head = first + in_group % group;
  return {head / num_heads, head % num_heads, p.m_tiles - 1 - in_group / group};
}

// By a warp. Tiles of one sequence follow each other, its last first; behind them all the sequence
// is past the last.
template <int kRows>
__device__ TilePlace ragged_place(const Sm90PrefillParams& p, int index) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int wanted = index / p.common.num_heads;
  int before = 0;
  for (int base = 0; base < p.common.batch; base += 32) {
    const int s = base + lane;
    int count = 0;
    if (s < p.common.batch) {
      count = divide_up(p.common.q_starts[s + 1] - p.common.q_starts[s], kRows);
    }
    int end = count;
    TESSERA_UNROLL
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(~0u, end, step);
      if (lane >= step) end += other;
    }
    end += before;
    const unsigned found = __ballot_sync(~0u, wanted < end);
    if (found != 0) {
      const int first = __ffs(found) - 1;
      return {base + first, index % p.common.num_heads, __shfl_sync(~0u, end, first) - 1 - wanted};
    }
    before = __shfl_sync(~0u, end, 31);
  }
  return {p.common.batch, 0, 0};
}

__device__ inline void set(short2& pair, int i, int value) {
  (i == 0 ? pair.x : pair.y) = static_cast<int16_t>(value);
}

// By a warp, into shared memory. False: none is left.
template <class Tile>
__device__ bool make_work(const Sm90PrefillParams& p, int index, PrefillWork& work) {
  const bool is_writer = threadIdx.x % 32 == 0;
  TilePlace at{p.common.batch, 0, 0};
  if (index < p.num_tiles) {
    at = p.common.q_starts != nullptr ? ragged_place<Tile::kRows>(p, index)
                                      : batched_place(p, index);
  }
  if (at.sequence >= p.common.batch) {
    if (is_writer) work.head = -1;
    return false;
  }
  const Sequence s = sequence_of(p.common, at.sequence);
  const int first = at.m_tile * Tile::kRows;
  const TileKeys keys = tile_keys(p.common.mask, s, first, min(first + Tile::kRows, s.q_len) - 1);
  if (!is_writer) return true;
  work.sequence = at.sequence;
  work.head = at.head;
  work.kv_head = at.head / (p.common.num_heads / p.common.num_kv_heads);
  work.first_row = first;
  work.kv_begin = s.kv_begin;
  work.kv_batch = p.common.kv_starts != nullptr ? 0 : at.sequence;
  work.q_begin = s.q_begin;
  work.q_len = s.q_len;
  work.kv_len = s.kv_len;
  TESSERA_UNROLL
  for (int i = 0; i < 2; ++i) {
    const KeyRange any = keys.any[i];
    const KeyRange all = keys.all[i];
    const bool is_seen = any.begin < any.end;
    work.any_begin[i] = any.begin;
    work.any_end[i] = any.end;
    const bool is_full = all.begin < all.end;
    set(work.seen_begin, i, is_seen ? any.begin / Tile::kKeys : 0);
    set(work.seen_end, i, is_seen ? divide_up(any.end, Tile::kKeys) : 0);
    set(work.full_begin, i, is_full ? divide_up(all.begin, Tile::kKeys) : 0);
    set(work.full_end, i, is_full ? all.end / Tile::kKeys : 0);
  }
  return true;
}

// The blocks of keys of a tile, from the right to the left: what is masked comes early.
struct BlockWalk {
  short2 seen_begin, seen_end, full_begin, full_end;

  __device__ explicit BlockWalk(const PrefillWork& work)
      : seen_begin(work.seen_begin),
        seen_end(work.seen_end),
        full_begin(work.full_begin),
        full_end(work.full_end) {}

  // The last block before `block`; negative: none.
  __device__ int before(int block) const {
    const int last_x = min(block, seen_end.x) - 1;
    const int last_y = min(block, seen_end.y) - 1;
    return max(last_x >= seen_begin.x ? last_x : -1, last_y >= seen_begin.y ? last_y : -1);
  }
  __device__ int first() const { return before(kUnbounded); }
  __device__ bool is_full(int block) const {
    return (block >= full_begin.x && block < full_end.x) ||
           (block >= full_begin.y && block < full_end.y);
  }
};

}  // namespace tessera::kernels
