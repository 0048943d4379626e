// What the Hopper prefill kernel keeps in shared memory, and the barriers that guard it.
// SPDX-License-Identifier: MIT
#pragma once

#include <vector_types.h>

#include <cstdint>

#include "kernels/attention/sequence.cuh"
#include "kernels/attention/sm90/tile.h"
#include "tile/pipeline.cuh"

namespace tessera::kernels {

// Rows of q, k and v are cut into slabs of 128 bytes, the width of the swizzle; where a head has
// less, the copy engine fills the slab with zeros.
inline constexpr int kSlabBytes = 128;
constexpr int num_slabs(int row_bytes) { return (row_bytes + kSlabBytes - 1) / kSlabBytes; }

// The blocks of keys that some rows see, per range of the mask (mask.cuh). They are walked from the
// right to the left: what is masked comes early.
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

// A tile of queries as the producer hands it to the consumers. Ranges of keys are per range of the
// mask.
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

// A thread's two rows at the end of a tile: what results are multiplied with, and the logarithms of
// the sums.
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

  // The tensor cores want 8-bit values with keys side by side, but they come with keys below each
  // other: some warps turn them (turn.cuh), a row of the turned tile for every element of a head.
  static constexpr bool kTurnsV = sizeof(T) == 1;
  static constexpr int kTurnedBytes =
      kTurnsV ? Tile::kValueDim * num_slabs(Tile::kKeys) * kSlabBytes : 1024;

  // Whether results pass through the place of their queries, to be stored by the copy engine. With
  // one buffer of queries the next ones would have to wait.
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
    // Who else walks the works: who turns values; or who loads them, and who helps both loaders.
    work.init(1, Tile::kWarpgroups + (Shared::kTurnsV ? 1 : 2 * num_loaders - 1));
  }

  // What the consumers of v wait for and give back.
  __device__ tile::Pipeline<Tile::kStages>& values() {
    if constexpr (Shared::kTurnsV) {
      return turned;
    } else {
      return v;
    }
  }
};

}  // namespace tessera::kernels
