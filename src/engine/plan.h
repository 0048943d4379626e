// What the next step computes: a pure function of the queues and the free pages.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera::engine {

// A sequence that is running or waiting, as the plan sees it.
struct PlanEntry {
  int64_t num_known = 0;              // tokens whose ids are known: prompt and generated
  int64_t num_computed = 0;           // of these, whose keys and values are in the cache
  int64_t num_cached = 0;             // waiting only: tokens of a cached prefix it would start from
  int64_t num_idle_cached_pages = 0;  // waiting only: pages of it that nobody holds
  int64_t num_pages = 0;              // running only: pages held
  bool copies_last_page = false;      // running only: writing needs a page more (copy-on-write)
  int32_t priority = 0;
  uint64_t arrival = 0;      // order of arrival of the request; ties cannot be
  int32_t num_siblings = 1;  // sequences that start with this one: batch rows to reserve
};

struct PlanLimits {
  int64_t max_tokens = 0;  // of one step
  int64_t max_batch = 0;   // sequences in one step
  int64_t page_size = 0;
  int64_t num_available_pages = 0;
};

struct PlannedChunk {
  int64_t entry = 0;       // index into running, or into waiting
  int64_t num_tokens = 0;  // to compute this step
};

struct Plan {
  std::vector<int64_t>
      preempt;  // indices into running, the last to arrive of the least priority first
  std::vector<PlannedChunk> running;  // decodes, then chunks, each in order of service
  std::vector<PlannedChunk> admit;    // indices into waiting, in order of service
};

// Running sequences go before waiting ones and one-token steps before chunks, so that a long prompt
// never stalls the rest; within each kind by priority, then arrival. When pages run short the last
// in that order are preempted and nothing is admitted. The first in order always fits.
Plan plan(std::span<const PlanEntry> running, std::span<const PlanEntry> waiting,
          const PlanLimits& limits);

}  // namespace tessera::engine
