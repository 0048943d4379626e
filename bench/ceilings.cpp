// The CPU's memory bandwidth, and the floor that ceilings put under a problem.
// SPDX-License-Identifier: MIT
#include "bench/ceilings.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "bench/timer.h"
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
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < kWords; ++i) {
    from[i] = i;
    to[i] = 0;
  }
  int64_t total = 0;
  const double read_seconds = median_seconds([&] {
    int64_t sum = 0;
#pragma omp parallel for schedule(static) reduction(+ : sum)
    for (int64_t i = 0; i < kWords; ++i) sum += from[i];
    total += sum;
  });
  const double copy_seconds = median_seconds([&] {
#pragma omp parallel for schedule(static)
    for (int64_t block = 0; block < kWords / kBlockWords; ++block) {
      std::memcpy(to + block * kBlockWords, from + block * kBlockWords, kBlockWords * 8);
    }
  });
  Ceilings ceilings;
  // The sum is looked at, so that the loop that made it stays.
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
