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

// Ranges of keys as ranges of blocks.
template <int kKeys>
__device__ BlockRanges block_ranges(const TileKeys& keys) {
  const auto pair = [](int x, int y) {
    return short2{static_cast<int16_t>(x), static_cast<int16_t>(y)};
  };
  int seen_begin[2], seen_end[2], full_begin[2], full_end[2];
  TESSERA_UNROLL
  for (int i = 0; i < 2; ++i) {
    const bool is_seen = keys.any[i].begin < keys.any[i].end;
    const bool is_full = keys.all[i].begin < keys.all[i].end;
    seen_begin[i] = is_seen ? keys.any[i].begin / kKeys : 0;
    seen_end[i] = is_seen ? divide_up(keys.any[i].end, kKeys) : 0;
    full_begin[i] = is_full ? divide_up(keys.all[i].begin, kKeys) : 0;
    full_end[i] = is_full ? keys.all[i].end / kKeys : 0;
  }
  return {pair(seen_begin[0], seen_begin[1]), pair(seen_end[0], seen_end[1]),
          pair(full_begin[0], full_begin[1]), pair(full_end[0], full_end[1])};
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
  const int first_row = at.m_tile * Tile::kRows;
  constexpr int kParts = Tile::kSkipsBlocks ? Tile::kWarpgroups : 1;
  constexpr int kPartRows = Tile::kRows / kParts;
  TileKeys keys = TileKeys::of_no_rows();
#pragma unroll 1
  for (int w = 0; w < kParts; ++w) {
    const int first = first_row + kPartRows * w;
    BlockRanges blocks{};
    if (first < s.q_len) {
      const TileKeys part = tile_keys(p.common.mask, s, first, min(first + kPartRows, s.q_len) - 1);
      keys.join(part);
      blocks = block_ranges<Tile::kKeys>(part);
    }
    if (is_writer) work.of_warpgroup[w] = blocks;
  }
  if (!is_writer) return true;
  work.sequence = at.sequence;
  work.head = at.head;
  work.kv_head = at.head / (p.common.num_heads / p.common.num_kv_heads);
  work.first_row = first_row;
  work.kv_begin = s.kv_begin;
  work.kv_batch = p.common.kv_starts != nullptr ? 0 : at.sequence;
  work.q_begin = s.q_begin;
  work.q_len = s.q_len;
  work.kv_len = s.kv_len;
  TESSERA_UNROLL
  for (int i = 0; i < 2; ++i) {
    work.any_begin[i] = keys.any[i].begin;
    work.any_end[i] = keys.any[i].end;
  }
  work.blocks = block_ranges<Tile::kKeys>(keys);
  return true;
}

}  // namespace tessera::kernels
