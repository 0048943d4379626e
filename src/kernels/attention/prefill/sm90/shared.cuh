// What the Hopper prefill kernel reads, what it keeps in shared memory, and the barriers in
// between.
// SPDX-License-Identifier: MIT
#pragma once

#include <cuda.h>
#include <vector_types.h>

#include <cstdint>

#include "kernels/attention/mask.cuh"
#include "kernels/attention/prefill/sm90/plan.h"
#include "tile/pipeline.cuh"

namespace tessera::kernels::prefill_sm90 {

struct Sm90PrefillParams {
  // Boxes of one slab: k and v [batch or page, head, row, element], q and out [batch, head, row,
  // packed head, element].
  CUtensorMap q;
  CUtensorMap k;
  CUtensorMap v;
  CUtensorMap out;  // boxes of a warpgroup's 64 rows
  // 2^log2_packed query heads that share a KV head count as one, with the rows of all of them:
  // those of one token are neighbours.
  AttentionParams common;
  int log2_packed;
  int num_tiles;  // tiles of queries over all sequences and heads; ragged: an upper bound
  int m_tiles;    // of one sequence; ragged: of all, an upper bound
  int num_pages;  // paged: also a page number out of range
  int log2_page_size;
  int box_rows;      // of k and v; a block of keys is a whole number of boxes
  int num_loaders;   // warps that load k, and as many for v
  int group;         // heads, over all sequences, whose tiles are processed together
  bool is_out_bf16;  // 8-bit inputs only; false: f16
  bool zeroes_v;     // rows of v that no query sees may hold anything, so they are zeroed
  int value_dim;     // padded tiles only: elements of a head of out, a multiple of 8
};
static_assert(std::is_trivially_copyable_v<Sm90PrefillParams>);

// Rows of q, k and v are cut into slabs of 128 bytes, the width of the swizzle. TMA fills the rest
// of a partial slab with zeros.
inline constexpr int kSlabBytes = 128;
constexpr int num_slabs(int row_bytes) { return (row_bytes + kSlabBytes - 1) / kSlabBytes; }

// The blocks of keys that some rows see, for each of the mask's two ranges (mask.cuh). They are
// processed from right to left, so that partially masked blocks come first.
struct alignas(16) BlockRanges {
  short2 seen_begin;  // some row sees a key
  short2 seen_end;
  short2 full_begin;  // every row sees all keys
  short2 full_end;

  // The last block before `block`; negative: none.
  __device__ int before(int block) const {
    const int last_x = min(block, seen_end.x) - 1;
    const int last_y = min(block, seen_end.y) - 1;
    return max(last_x >= seen_begin.x ? last_x : -1, last_y >= seen_begin.y ? last_y : -1);
  }
  __device__ int first() const { return before(kUnbounded); }
  __device__ bool has(int block) const {
    return (block >= seen_begin.x && block < seen_end.x) ||
           (block >= seen_begin.y && block < seen_end.y);
  }
  __device__ bool is_full(int block) const {
    return (block >= full_begin.x && block < full_end.x) ||
           (block >= full_begin.y && block < full_end.y);
  }
};

// A tile of queries, as the producer describes it to the other warps. Arrays of two are indexed by
// the mask's range.
inline constexpr int kMaxWarpgroups = 4;
struct PrefillWork {
  int sequence;
  int head;  // negative: no more work
  int kv_head;
  int kv_begin;  // rows of k before the sequence's first
  int kv_batch;
  int first_row;
  int q_begin;
  int q_len;
  int kv_len;
  int any_begin[2];  // keys
  int any_end[2];
  BlockRanges blocks;
  BlockRanges of_warpgroup[kMaxWarpgroups];  // of its 64 rows
};
inline constexpr int kWorkSlots = 4;

// A thread's two rows at the end of a tile: the factor of the results and the lse.
struct alignas(16) RowEnds {
  float factor[2];
  float lse[2];
};

template <class T, class Tile>
struct PrefillShared {
  static constexpr int kKeySlabs = num_slabs(Tile::kKeyDim * sizeof(T));
  static constexpr int kValueSlabs = num_slabs(Tile::kValueDim * sizeof(T));
  static constexpr int kQBytes = Tile::kRows * kKeySlabs * kSlabBytes;
  static constexpr int kKBytes = Tile::kKeys * kKeySlabs * kSlabBytes;
  static constexpr int kVBytes = Tile::kKeys * kValueSlabs * kSlabBytes;

  // For 8-bit values WGMMA needs the keys of an element to be contiguous, but TMA delivers the
  // elements of a key: some warps transpose them (PrefillTurner), one row of the result per
  // element.
  static constexpr bool kTurnsV = sizeof(T) == 1;
  static constexpr int kTurnedBytes =
      kTurnsV ? Tile::kValueDim * num_slabs(Tile::kKeys) * kSlabBytes : 1024;

  // Results overwrite their queries in shared memory and are stored by TMA. With one query buffer
  // the next queries would have to wait, so results are then stored from registers.
  static constexpr bool kStagesOut = Tile::kQueryBuffers == 2 && sizeof(T) == 2;
  static_assert(!kStagesOut || kValueSlabs <= kKeySlabs);

  alignas(1024) char q[Tile::kQueryBuffers][kQBytes];
  alignas(1024) char k[Tile::kStages][kKBytes];
  alignas(1024) char v[Tile::kStages][kVBytes];
  alignas(1024) char turned[kTurnsV ? Tile::kStages : 1][kTurnedBytes];
  tile::PipelineBarriers<Tile::kQueryBuffers> q_barriers;
  tile::PipelineBarriers<Tile::kStages> k_barriers;
  tile::PipelineBarriers<Tile::kStages> v_barriers;
  tile::PipelineBarriers<Tile::kStages> turned_barriers;
  tile::PipelineBarriers<kWorkSlots> work_barriers;
  PrefillWork works[kWorkSlots];
};

template <class T, class Tile>
struct PrefillRings {
  using Shared = PrefillShared<T, Tile>;
  tile::Pipeline<Tile::kQueryBuffers> q;
  tile::Pipeline<Tile::kStages> k;
  tile::Pipeline<Tile::kStages> v;
  tile::Pipeline<Tile::kStages> turned;
  tile::Pipeline<kWorkSlots> work;

  __device__ explicit PrefillRings(Shared& shared)
      : q(shared.q_barriers),
        k(shared.k_barriers),
        v(shared.v_barriers),
        turned(shared.turned_barriers),
        work(shared.work_barriers) {}

  // One thread.
  __device__ void init(int num_loaders) {
    q.init(1, Tile::kWarpgroups);
    k.init(1, Tile::kWarpgroups);
    v.init(1, Shared::kTurnsV ? 1 : Tile::kWarpgroups);
    turned.init(1, Tile::kWarpgroups);
    // Other readers of the work queue: the warps that transpose values; or the warp that loads
    // values, and one more per operand if two warps load each.
    work.init(1, Tile::kWarpgroups + (Shared::kTurnsV ? 1 : 2 * num_loaders - 1));
  }

  // The ring of v that the consumers read.
  __device__ tile::Pipeline<Tile::kStages>& values() {
    if constexpr (Shared::kTurnsV) {
      return turned;
    } else {
      return v;
    }
  }
};

}  // namespace tessera::kernels::prefill_sm90
