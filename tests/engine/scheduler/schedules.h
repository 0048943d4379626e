// Requests in random schedules against the same requests alone: every one must be answered alike.
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

// Over all schedules: tests say what must have happened.
struct ScheduleCounts {
  int64_t num_preemptions = 0;
  int64_t num_replayed_tokens = 0;
  int64_t num_cached_tokens = 0;
  int64_t num_steps = 0;
};

// Forty requests, alone and then in batches with random limits and memory that is often short; what
// comes back must be the same in every bit. Stops at the first schedule that fails.
ScheduleCounts expect_alike_in_any_schedule(const ScheduleCase& schedules);

}  // namespace tessera::testing
