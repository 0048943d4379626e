// What a block of the portable prefill kernels knows of its work, and how many blocks there are.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/attention/portable/load.cuh"
#include "kernels/attention/portable/place.cuh"

namespace tessera::kernels {

// What is asked for once a block of keys or less. It lies in shared memory and not in registers, of
// which scores and values leave none.
template <class T, int kKeys>
struct AttentionWork {
  QueryTile tile;
  int head;
  TileKeys keys;
  BlockSpan blocks;  // of kKeys keys
  RowSource<T> k_rows;
  RowSource<T> v_rows;

  // Of all lanes of one warp.
  __device__ void note(const AttentionParams& p, const QueryTile& its_tile, int its_head) {
    const int kv_head = its_head / (p.num_heads / p.num_kv_heads);
    tile = its_tile;
    head = its_head;
    keys = tile_keys(p.mask, its_tile.sequence, its_tile.first, its_tile.last);
    blocks = block_span<kKeys>(keys);
    k_rows = key_rows<T>(p, its_tile.sequence, kv_head);
    v_rows = value_rows<T>(p, its_tile.sequence, kv_head);
  }
  // The next block to meet after `block`, or -1: from right to left.
  __device__ int block_after(const MaskParams& mask, int block) const {
    return block_before<kKeys>(mask, keys, blocks.first, block);
  }
  // The keys of a block that may be read, a bit each. All lanes of a warp get the answer.
  __device__ uint64_t seen(const MaskParams& mask, int block) const {
    return seen_keys<kKeys>(mask, tile, keys, block);
  }
  __device__ int position(int row) const { return tile.sequence.position(tile.query(row)); }
};

// Where a row of out, or of lse, begins.
template <class T>
__device__ T* head_of(T* data, const RowStrides& strides, const Sequence& s, int head) {
  return data + s.index * strides.batch + s.q_begin * strides.row + head * strides.head;
}

// Blocks of a launch. Of ragged sequences the host knows the tokens, not where each one ends.
inline dim3 attention_grid(const AttentionParams& p, int rows) {
  const unsigned heads = static_cast<unsigned>(p.num_heads);
  if (p.q_starts != nullptr) return {static_cast<unsigned>(p.q_len / rows + p.batch), heads, 1};
  return {static_cast<unsigned>((p.q_len + rows - 1) / rows), heads,
          static_cast<unsigned>(p.batch)};
}

}  // namespace tessera::kernels
