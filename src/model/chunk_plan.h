// How chunks of prompts attend over a quantised cache: its tokens are dequantised into scratch
// pages in the model's type, and attention reads those.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "model/batch.h"

namespace tessera::model {

// The scratch: pages for dequantised tokens, reused by every pass of a layer, followed, where keys
// have tails, by pages of keys as they were computed.
struct ScratchSizes {
  int64_t page_size = 0;  // tokens
  int64_t num_gathered = 0;
  int64_t num_exact = 0;

  int64_t num_pages() const { return num_gathered + num_exact; }
  int64_t num_rows() const { return num_pages() * page_size; }
};
// All 0 for a plain cache, which needs no scratch.
ScratchSizes scratch_sizes(const BatchLimits& limits);

// An upper bound on the i32 in the plan of a step, each list rounded up to `alignment`.
int64_t chunk_plan_capacity(const BatchLimits& limits, int64_t alignment);

// With scales by row a chunk is one part, which attends to dequantised tokens only. With scales by
// column a token sees the groups of 32 before its own dequantised, and its own group as computed.
// So each group of a chunk is a part: the last page of its keys holds the exact keys, the pages
// before hold dequantised ones, and all its values are dequantised. Which keys a token sees, and in
// which order, then depends on its position alone.
void plan_chunks(const HostBatch& host, const BatchLimits& limits, ChunkPlan& plan);

}  // namespace tessera::model
