// Medians, rotations and floors.
// SPDX-License-Identifier: MIT
#include "bench/timer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <thread>

#include "bench/ceilings.h"

namespace tessera::bench {
namespace {

TEST(Percentile, LiesBetweenTheSortedSamples) {
  EXPECT_EQ(percentile({3, 1, 2}, 0.5), 2);
  EXPECT_EQ(percentile({4, 1, 2, 3}, 0.5), 2.5);
  EXPECT_EQ(percentile({5, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11}, 0.1), 2);
  EXPECT_EQ(percentile({7}, 0.9), 7);
}

TEST(TimeCalls, WalksEverySetAndReportsMicrosecondsOfOneCall) {
  std::set<int64_t> seen;
  const Call call = [&](int64_t set, const Context&) {
    seen.insert(set);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  };
  const Timing timing = time_calls(cpu_device(), 3, call, {.num_warmup = 1, .num_batches = 4});
  EXPECT_EQ(seen, (std::set<int64_t>{0, 1, 2}));
  EXPECT_EQ(timing.num_calls % 3, 0);
  EXPECT_GE(timing.us, 2000);
  EXPECT_LT(timing.us, 50000);
  EXPECT_LE(timing.p10, timing.us);
  EXPECT_LE(timing.us, timing.p90);
}

TEST(TimeCalls, LengthensABatchThatIsTooShortToTime) {
  const Call call = [](int64_t, const Context&) {};
  const Timing timing = time_calls(cpu_device(), 2, call, {.num_batches = 2});
  EXPECT_GT(timing.num_calls, 20);
}

TEST(Floor, IsTheLargerOfMemoryAndArithmetic) {
  Ceilings ceilings;
  ceilings.read_tbs = 4.0;
  ceilings.bf16_tflops = 800;
  EXPECT_DOUBLE_EQ(floor_us(ceilings, 4e6, 0), 1.0);
  EXPECT_DOUBLE_EQ(floor_us(ceilings, 4e6, 1.6e9), 2.0);
  ceilings.bf16_tflops = 0;  // not measured: memory alone counts
  EXPECT_DOUBLE_EQ(floor_us(ceilings, 4e6, 1.6e9), 1.0);
}

}  // namespace
}  // namespace tessera::bench
