// The CPU's memory bandwidth, and the floor that ceilings put under a problem.
// SPDX-License-Identifier: MIT
#include "bench/ceilings.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <numeric>
#include <vector>

#include "bench/timer.h"
#include "core/parallel.h"
#include "tessera/core/tensor.h"

namespace tessera::bench {
namespace {

constexpr int64_t kBlockWords = 1 << 17;  // 1 MiB, the share a thread takes at a time

template <class Body>
double median_seconds(const Body& body) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> samples;
  for (int i = 0; i < 6; ++i) {
    const auto start = Clock::now();
    body();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (i > 0) samples.push_back(seconds);  // the first touches the pages
  }
  return percentile(samples, 0.5);
}

Ceilings measure_cpu_ceilings() {
  constexpr int64_t kBytes = 256 << 20;
  constexpr int64_t kWords = kBytes / 8;
  const Tensor source(DType::i64, {kWords});
  const Tensor target(DType::i64, {kWords});
  int64_t* from = source.view().as<int64_t>();
  int64_t* to = target.view().as<int64_t>();
  const auto for_each_block = [&](auto&& body) {
    parallel_for(kWords / kBlockWords, kBlockWords,
                 [&](int64_t block) { body(block * kBlockWords); });
  };
  for_each_block([&](int64_t first) {
    std::iota(from + first, from + first + kBlockWords, first);
    std::fill_n(to + first, kBlockWords, 0);
  });
  std::atomic<int64_t> total = 0;
  const double read_seconds = median_seconds([&] {
    for_each_block([&](int64_t first) {
      total += std::accumulate(from + first, from + first + kBlockWords, int64_t{0});
    });
  });
  const double copy_seconds = median_seconds([&] {
    for_each_block([&](int64_t first) {
      std::memcpy(to + first, from + first, kBlockWords * sizeof(int64_t));
    });
  });
  Ceilings ceilings;
  // The sum is used, so that the compiler keeps the loop.
  ceilings.read_tbs = total == 1 ? 0 : static_cast<double>(kBytes) / read_seconds * 1e-12;
  ceilings.copy_tbs = 2.0 * static_cast<double>(kBytes) / copy_seconds * 1e-12;
  ceilings.note = "CPU: memory only; no matrix rate is measured";
  return ceilings;
}

}  // namespace

Ceilings measure_ceilings(Device device) {
  return device.is_cpu() ? measure_cpu_ceilings() : measure_cuda_ceilings(device);
}

double floor_us(const Ceilings& ceilings, double bytes, double flops) {
  const double memory = ceilings.read_tbs > 0 ? bytes / ceilings.read_tbs * 1e-6 : 0;
  const double compute = ceilings.bf16_tflops > 0 ? flops / ceilings.bf16_tflops * 1e-6 : 0;
  return std::max(memory, compute);
}

}  // namespace tessera::bench
