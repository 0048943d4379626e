// How chunks of prompts attend over a cache that is not plain: its tokens are read back into
// scratch pages in the model's type, and attention runs over those.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "model/batch.h"

namespace tessera::model {

// The scratch: pages the cache is read back into, used again by every pass of a layer; behind them
// pages of keys as they were computed, where keys have tails.
struct ScratchSizes {
  int64_t page_size = 0;  // tokens
  int64_t num_gathered = 0;
  int64_t num_exact = 0;

  int64_t num_pages() const { return num_gathered + num_exact; }
  int64_t num_rows() const { return num_pages() * page_size; }
};
// All 0 for a plain cache, which needs none.
ScratchSizes scratch_sizes(const BatchLimits& limits);

// The most i32 that the plan of a step holds, each list rounded up to `alignment`.
int64_t chunk_plan_capacity(const BatchLimits& limits, int64_t alignment);

// With scales by row a chunk is one part: it attends to all its tokens as read back. With scales by
// column a token sees the groups of 32 before its own as read back, and its own as computed. So
// every group of a chunk is a part of its own: its last page is that of the exact keys, those
// before are the ones read back, and its values are read back all. Which keys a token sees, and in
// which order, thus depends on its position alone.
void plan_chunks(const HostBatch& host, const BatchLimits& limits, ChunkPlan& plan);

}  // namespace tessera::model
