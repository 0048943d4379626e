// Requests in random schedules get the same answers as alone.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

#include "tests/engine/scheduler/tiny_model.h"

namespace tessera::testing {

struct ScheduleCase {
  KvFormat kv_type = KvFormat::plain;
  DType dtype = DType::f32;
  Device device = {};
  std::vector<int64_t> page_sizes = {1, 4, 16};
  uint64_t num_schedules = 40;
};

// Summed over all schedules, so that a test can check that they did what it is about.
struct ScheduleCounts {
  int64_t num_preemptions = 0;
  int64_t num_replayed_tokens = 0;
  int64_t num_cached_tokens = 0;
  int64_t num_steps = 0;
  int64_t num_replays = 0;
  int64_t num_wasted_rows = 0;
  int64_t num_drafted_tokens = 0;
  int64_t num_accepted_tokens = 0;
  int64_t num_draft_steps = 0;  // of draft models
};

// Forty requests, first alone and then in batches with random limits and often too few pages. The
// outputs must be identical bit for bit. Stops at the first schedule that fails.
ScheduleCounts expect_alike_in_any_schedule(const ScheduleCase& schedules);

}  // namespace tessera::testing
