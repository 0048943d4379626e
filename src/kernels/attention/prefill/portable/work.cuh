// Which queries a block computes, which blocks of keys they visit in which order, and how many
// blocks are launched.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/attention/mask.cuh"
#include "kernels/attention/prefill/portable/load.cuh"

namespace tessera::kernels::prefill_portable {

// A tile of one sequence: its queries first to last.
struct QueryTile {
  Sequence sequence;
  int first;
  int last;  // below first: nothing to do

  // The query of a row of the tile; rows after the last repeat it, so that every read is valid.
  __device__ int query(int row) const { return min(first + row, last); }
};

__device__ inline QueryTile tile_of(const Sequence& sequence, int tile, int rows) {
  return {sequence, tile * rows, min((tile + 1) * rows, sequence.q_len) - 1};
}

// Tile number `block` over all ragged sequences. A warp counts the tiles of 32 sequences at a time.
// The host knows only an upper bound of the number of tiles, so there may be none.
__device__ inline QueryTile ragged_tile(const AttentionParams& p, int block, int rows) {
  constexpr unsigned kAll = ~0u;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int first = 0; first < p.batch; first += 32) {
    const int index = first + lane;
    const int q_len = index < p.batch ? p.q_starts[index + 1] - p.q_starts[index] : 0;
    const int num_tiles = (q_len + rows - 1) / rows;
    int end = num_tiles;  // tiles up to and including this lane's sequence
    TESSERA_UNROLL
    for (int step = 1; step < 32; step *= 2) {
      const int below = __shfl_up_sync(kAll, end, step);
      if (lane >= step) end += below;
    }
    const unsigned holders = __ballot_sync(kAll, block < end);
    if (holders != 0) {
      const int owner = __ffs(static_cast<int>(holders)) - 1;
      const int last_tile = __shfl_sync(kAll, end, owner) - 1;
      return tile_of(sequence_of(p, first + owner), last_tile - block, rows);
    }
    block -= __shfl_sync(kAll, end, 31);
  }
  return {{}, 0, -1};
}

// Tiles of a sequence are processed from its last to its first: with a causal mask the last ones
// are the longest and should start first. All lanes of a warp get the answer.
__device__ inline QueryTile find_tile(const AttentionParams& p, int rows) {
  const int block = static_cast<int>(blockIdx.x);
  if (p.q_starts != nullptr) return ragged_tile(p, block, rows);
  const int last_tile = static_cast<int>(gridDim.x) - 1;
  return tile_of(sequence_of(p, static_cast<int>(blockIdx.z)), last_tile - block, rows);
}

// Blocks begin at multiples of kKeys keys of the sequence, so which keys a query processes together
// does not depend on its tile.
template <int kKeys>
__device__ KeyRange block_range(int block) {
  return {block * kKeys, (block + 1) * kKeys};
}

// The blocks from the first to the last key that some query sees; last is -1 if there is none.
struct BlockSpan {
  int first;
  int last;
};
template <int kKeys>
__device__ BlockSpan block_span(const TileKeys& keys) {
  const KeyRange hull = keys.hull();
  if (hull.begin >= hull.end) return {0, -1};
  return {hull.begin / kKeys, (hull.end - 1) / kKeys};
}

// The nearest block before `block` that some query may see, or -1. Only intervals have gaps.
template <int kKeys>
__device__ int block_before(const MaskParams& mask, const TileKeys& keys, int first, int block) {
  while (--block >= first) {
    if (mask.intervals == nullptr) return block;
    const KeyRange range = block_range<kKeys>(block);
    if (keys.any[0].meets(range) || keys.any[1].meets(range)) return block;
  }
  return -1;
}

// Bits [begin, end) of 64.
__device__ inline uint64_t bits_of(KeyRange range) {
  if (range.begin >= range.end) return 0;
  return (~uint64_t{0} >> (64 - (range.end - range.begin))) << range.begin;
}

// The keys of a block that some query of the tile sees, a bit each; no other key may be read.
// Without intervals the tile's ranges suffice; with them there may be gaps, so every query is
// checked. Called by all lanes of a warp, and all get the answer.
template <int kKeys>
__device__ uint64_t seen_keys(const MaskParams& mask, const QueryTile& tile, const TileKeys& keys,
                              int block) {
  static_assert(kKeys <= 64);
  const KeyRange range = block_range<kKeys>(block);
  const auto bits = [&](KeyRange seen) {
    const KeyRange cut = seen.cut(range);
    return bits_of({cut.begin - range.begin, cut.end - range.begin});
  };
  if (mask.intervals == nullptr) return bits(keys.any[0]);
  if (keys.all[0].holds(range) || keys.all[1].holds(range)) return bits(range);
  uint64_t seen = 0;
  for (int query = tile.first + static_cast<int>(threadIdx.x) % 32; query <= tile.last;
       query += 32) {
    const RowKeys row = row_keys(mask, tile.sequence, query);
    seen |= bits(row.ranges[0]) | bits(row.ranges[1]);
  }
  const uint32_t low = __reduce_or_sync(~0u, static_cast<uint32_t>(seen));
  const uint32_t high = __reduce_or_sync(~0u, static_cast<uint32_t>(seen >> 32));
  return uint64_t{high} << 32 | low;
}

// What a block of threads needs at most once per block of keys. It lies in shared memory, because
// scores and values leave no registers.
template <class T, int kKeys>
struct AttentionWork {
  QueryTile tile;
  int head;
  TileKeys keys;
  BlockSpan blocks;  // of kKeys keys
  RowSource<T> k_rows;
  RowSource<T> v_rows;

  // Called by all lanes of one warp.
  __device__ void note(const AttentionParams& p, const QueryTile& its_tile, int its_head) {
    const int kv_head = its_head / (p.num_heads / p.num_kv_heads);
    tile = its_tile;
    head = its_head;
    keys = tile_keys(p.mask, its_tile.sequence, its_tile.first, its_tile.last);
    blocks = block_span<kKeys>(keys);
    k_rows = key_rows<T>(p, its_tile.sequence, kv_head);
    v_rows = value_rows<T>(p, its_tile.sequence, kv_head);
  }
  // The block after `block`, from right to left, or -1.
  __device__ int block_after(const MaskParams& mask, int block) const {
    return block_before<kKeys>(mask, keys, blocks.first, block);
  }
  // The keys of a block that may be read, a bit each. Called by all lanes of a warp.
  __device__ uint64_t seen(const MaskParams& mask, int block) const {
    return seen_keys<kKeys>(mask, tile, keys, block);
  }
  __device__ int position(int row) const { return tile.sequence.position(tile.query(row)); }
};

// Where a head of out, or of lse, begins.
template <class T>
__device__ T* head_of(T* data, const RowStrides& strides, const Sequence& s, int head) {
  return data + s.index * strides.batch + s.q_begin * strides.row + head * strides.head;
}

// Blocks of a launch. For ragged sequences the host knows the number of tokens, not the lengths.
inline dim3 attention_grid(const AttentionParams& p, int rows) {
  const unsigned heads = static_cast<unsigned>(p.num_heads);
  if (p.q_starts != nullptr) return {static_cast<unsigned>(p.q_len / rows + p.batch), heads, 1};
  return {static_cast<unsigned>((p.q_len + rows - 1) / rows), heads,
          static_cast<unsigned>(p.batch)};
}

}  // namespace tessera::kernels::prefill_portable
