// Bytes held of each device, and the most at once.
// SPDX-License-Identifier: MIT
#include "core/memory_count.h"

#include <malloc.h>
#include <sys/resource.h>

#include <array>
#include <atomic>
#include <mutex>
#include <unordered_map>

namespace tessera {
namespace {

constexpr size_t kMaxCountedDevices = 64;

struct Count {
  std::atomic<int64_t> now = 0;
  std::atomic<int64_t> peak = 0;

  void add(int64_t bytes) {
    const int64_t held = now.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    int64_t known = peak.load(std::memory_order_relaxed);
    while (held > known && !peak.compare_exchange_weak(known, held, std::memory_order_relaxed)) {
    }
  }
};

// The last counts the GPUs beyond kMaxCountedDevices.
Count& count_of(Device device) {
  static std::array<Count, kMaxCountedDevices + 2> counts;
  if (device.is_cpu()) return counts[0];
  const auto index = static_cast<size_t>(device.index);
  return counts[1 + (index < kMaxCountedDevices ? index : kMaxCountedDevices)];
}

// The CUDA runtime does not say how long an allocation is. Never destroyed: static tensors may be
// freed while the process ends.
struct GpuSizes {
  std::mutex mutex;
  std::unordered_map<void*, int64_t> sizes;
};
GpuSizes& gpu_sizes() {
  static GpuSizes& made = *new GpuSizes;
  return made;
}

}  // namespace

void count_allocated(Device device, void* data, size_t num_bytes) {
  auto bytes = static_cast<int64_t>(num_bytes);
  if (device.is_cpu()) {
    bytes = static_cast<int64_t>(malloc_usable_size(data));
  } else {
    const std::lock_guard lock(gpu_sizes().mutex);
    gpu_sizes().sizes[data] = bytes;
  }
  count_of(device).add(bytes);
}

void count_freed(Device device, void* data) noexcept {
  int64_t bytes = 0;
  if (device.is_cpu()) {
    bytes = static_cast<int64_t>(malloc_usable_size(data));
  } else {
    const std::lock_guard lock(gpu_sizes().mutex);
    const auto found = gpu_sizes().sizes.find(data);
    if (found == gpu_sizes().sizes.end()) return;
    bytes = found->second;
    gpu_sizes().sizes.erase(found);
  }
  count_of(device).add(-bytes);
}

AllocatedBytes allocated_bytes(Device device) {
  const Count& count = count_of(device);
  return {.now = count.now, .peak = count.peak};
}

void reset_peak_bytes(Device device) {
  Count& count = count_of(device);
  count.peak = count.now.load();
}

int64_t peak_host_bytes() {
  struct rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<int64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace tessera
