// The ranges that kernels may touch.
// SPDX-License-Identifier: MIT
#include "tests/emulator/memory.h"

#include <new>

namespace tessera::emulator {
namespace {

constexpr size_t kAlign = 512;  // of cudaMalloc; kernels rely on 128 and more

}  // namespace

void Allocations::add(const void* begin, size_t bytes) {
  const std::lock_guard guard(mutex_);
  end_of_[reinterpret_cast<uint64_t>(begin)] = reinterpret_cast<uint64_t>(begin) + bytes;
  ++version_;
}

bool Allocations::remove(const void* begin) {
  const std::lock_guard guard(mutex_);
  ++version_;
  return end_of_.erase(reinterpret_cast<uint64_t>(begin)) > 0;
}

std::optional<Range> Allocations::find(uint64_t address, uint64_t bytes) const {
  const std::lock_guard guard(mutex_);
  const auto after = end_of_.upper_bound(address);
  if (after == end_of_.begin()) return std::nullopt;
  const auto& [begin, end] = *std::prev(after);
  const Range range{begin, end};
  return range.holds(address, bytes) ? std::optional(range) : std::nullopt;
}

size_t Allocations::total_bytes() const {
  const std::lock_guard guard(mutex_);
  size_t total = 0;
  for (const auto& [begin, end] : end_of_) total += end - begin;
  return total;
}

// Never destroyed: variables of modules and allocations of static objects are released after main.
Allocations& allocations() {
  static Allocations& instance = *new Allocations;
  return instance;
}

DeviceMemory::DeviceMemory(size_t bytes)
    : data_(static_cast<char*>(std::aligned_alloc(kAlign, (bytes / kAlign + 1) * kAlign))) {
  if (data_ == nullptr) throw std::bad_alloc();
  allocations().add(data_.get(), bytes);
}

DeviceMemory::~DeviceMemory() {
  if (data_ != nullptr) allocations().remove(data_.get());
}

}  // namespace tessera::emulator
