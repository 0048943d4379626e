// Calls timed by the host's clock, without waiting for what they start.
// SPDX-License-Identifier: MIT
#include "bench/host_cost.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace tessera::bench {

int64_t num_host_calls(double call_us) {
  constexpr double kMostUs = 20e3;  // of device time in a batch
  return static_cast<int64_t>(std::clamp(kMostUs / std::max(call_us, 1e-3), 4.0, 64.0));
}

double measure_host_us(Device device, int64_t num_sets, const Call& call, double call_us) {
  constexpr int kNumBatches = 5;
  using Clock = std::chrono::steady_clock;
  const int64_t num_calls = num_host_calls(call_us);
  std::vector<double> times;
  for (int batch = -1; batch < kNumBatches;
       ++batch) {  // the first fills caches, and is not counted
    synchronize(device);
    const auto start = Clock::now();
    for (int64_t i = 0; i < num_calls; ++i) call(i % num_sets, {});
    const double us = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
    if (batch >= 0) times.push_back(us / static_cast<double>(num_calls));
  }
  synchronize(device);
  return percentile(std::move(times), 0.5);
}

}  // namespace tessera::bench
