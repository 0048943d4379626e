// Queries memory, and computes what fits into it.
// SPDX-License-Identifier: MIT
#include "apps/machine.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <limits>

#include "core/text.h"

namespace tessera::apps {
namespace {

const auto kBegin = std::chrono::steady_clock::now();

// A line of /proc/meminfo, such as "MemTotal:", in bytes.
int64_t meminfo(const std::string& wanted) {
  std::ifstream file("/proc/meminfo");
  std::string name;
  int64_t kib = 0;
  while (file >> name >> kib) {
    if (name == wanted) return kib * 1024;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return 0;
}

}  // namespace

int64_t total_memory_bytes() { return meminfo("MemTotal:"); }
int64_t available_memory_bytes() { return meminfo("MemAvailable:"); }

double program_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - kBegin).count();
}

std::string show_device(Device device) {
  if (device.is_cpu()) return to_string(device);
  return concat(to_string(device), ", ", device_info(device).name);
}

std::vector<MemoryPlace> memory_places() {
  std::vector<MemoryPlace> places;
  if (const int64_t memory = total_memory_bytes(); memory > 0) {
    places.push_back({.name = "this CPU", .bytes = memory});
  }
  for (int i = 0; i < num_cuda_devices(); ++i) {
    places.push_back(
        {.name = concat("cuda:", i), .bytes = device_info(cuda_device(i)).memory_bytes});
  }
  places.push_back({.name = "80 GB GPU", .bytes = 80'000'000'000});
  places.push_back({.name = "141 GB GPU", .bytes = 141'000'000'000});
  return places;
}

int64_t sequences_that_fit(int64_t memory_bytes, int64_t weight_bytes, int64_t kv_bytes_per_token,
                           int64_t context, int64_t page_size) {
  const auto usable = static_cast<int64_t>(static_cast<double>(memory_bytes) * kUsableShare);
  const int64_t num_rows = (context + page_size - 1) / page_size * page_size;
  const int64_t sequence_bytes = num_rows * kv_bytes_per_token;
  if (usable <= weight_bytes || sequence_bytes <= 0) return 0;
  return (usable - weight_bytes) / sequence_bytes;
}

std::vector<int64_t> contexts_to_show(int64_t max_positions) {
  std::vector<int64_t> contexts;
  for (int64_t context = 512; context < max_positions; context *= 4) contexts.push_back(context);
  contexts.push_back(max_positions);
  return contexts;
}

CacheWaste cache_waste(std::span<const int64_t> lengths, int64_t page_size, int64_t max_context) {
  int64_t num_tokens = 0;
  int64_t num_paged = 0;
  int64_t num_contiguous = 0;
  for (const int64_t length : lengths) {
    num_tokens += length;
    num_paged += (length + page_size - 1) / page_size * page_size;
    num_contiguous += std::max(length, max_context);
  }
  if (num_tokens == 0) return {};
  const auto share = [&](int64_t rows) {
    return 1.0 - static_cast<double>(num_tokens) / static_cast<double>(rows);
  };
  return {.paged = share(num_paged), .contiguous = share(num_contiguous)};
}

std::vector<int64_t> even_lengths(int64_t shortest, int64_t longest, int64_t count) {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < count; ++i) {
    lengths.push_back(count == 1 ? shortest : shortest + (longest - shortest) * i / (count - 1));
  }
  return lengths;
}

}  // namespace tessera::apps
