// Timing by batches, and the CPU's batches.
// SPDX-License-Identifier: MIT
#include "bench/timer.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace tessera::bench {
namespace {

class CpuBatch : public Batch {
 public:
  CpuBatch(int64_t num_calls, Call call) : num_calls_(num_calls), call_(std::move(call)) {}

  std::vector<double> run(int count) override {
    using Clock = std::chrono::steady_clock;
    std::vector<double> times;
    for (int i = 0; i < count; ++i) {
      const auto start = Clock::now();
      for (int64_t c = 0; c < num_calls_; ++c) call_(c, {});
      times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
    }
    return times;
  }

 private:
  int64_t num_calls_;
  Call call_;
};

}  // namespace

std::unique_ptr<Batch> make_batch(Device device, int64_t num_calls, const Call& call) {
  if (device.is_cpu()) return std::make_unique<CpuBatch>(num_calls, call);
  return make_cuda_batch(device, num_calls, call);
}

double percentile(std::vector<double> samples, double share) {
  if (samples.empty()) return 0;
  std::ranges::sort(samples);
  const double place = share * static_cast<double>(samples.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, samples.size() - 1);
  const double part = place - static_cast<double>(below);
  return samples[below] * (1 - part) + samples[above] * part;
}

WarmBatch warm_batch(Device device, int64_t num_sets, const Call& call,
                     const TimerOptions& options) {
  const auto whole_rotations = [num_sets](double least) {
    const auto n = static_cast<int64_t>(std::ceil(least / static_cast<double>(num_sets)));
    return std::max<int64_t>(n, 1) * num_sets;
  };
  const Call rotating = [call, num_sets](int64_t i, const Context& ctx) {
    call(i % num_sets, ctx);
  };
  WarmBatch warm;
  // The CPU has no launch to hide; many calls that are slow would take too long.
  warm.num_calls =
      device.is_cpu() ? num_sets : whole_rotations(static_cast<double>(options.least_calls));
  warm.batch = make_batch(device, warm.num_calls, rotating);
  warm.batch_us = std::max(warm.batch->run(std::max(options.num_warmup, 1)).back(), 1e-3);
  if (warm.batch_us < options.least_batch_us) {
    const double one_us = warm.batch_us / static_cast<double>(warm.num_calls);
    warm.num_calls = whole_rotations(options.least_batch_us / one_us);
    warm.batch = make_batch(device, warm.num_calls, rotating);
    warm.batch_us = std::max(warm.batch->run(1).back(), 1e-3);
  }
  return warm;
}

Timing timing_of(const WarmBatch& warm, const std::vector<double>& call_times) {
  return {.us = percentile(call_times, 0.5),
          .p10 = percentile(call_times, 0.1),
          .p90 = percentile(call_times, 0.9),
          .num_calls = warm.num_calls,
          .num_batches = static_cast<int>(call_times.size()),
          .batch = warm.batch};
}

Timing time_calls(Device device, int64_t num_sets, const Call& call, const TimerOptions& options) {
  const WarmBatch warm = warm_batch(device, num_sets, call, options);
  const double wanted = options.seconds * 1e6 / warm.batch_us;
  std::vector<double> times =
      warm.batch->run(options.num_batches > 0 ? options.num_batches
                                              : static_cast<int>(std::clamp(wanted, 10.0, 200.0)));
  for (double& time : times) time /= static_cast<double>(warm.num_calls);
  return timing_of(warm, times);
}

}  // namespace tessera::bench
