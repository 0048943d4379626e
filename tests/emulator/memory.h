// Device memory: what is allocated, so that every access of a kernel can be checked.
// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

namespace tessera::emulator {

// The generic addresses of shared memory, where a host's program has nothing.
constexpr uint64_t kSharedWindow = 0x7100000000000000;
// Shared memory of block r of a cluster begins at r * kBlockWindow, for every block of the cluster.
constexpr uint32_t kBlockWindow = 1u << 24;

inline bool is_shared(uint64_t generic_address) {
  return generic_address >> 32 == kSharedWindow >> 32;
}

struct Range {
  uint64_t begin = 0;
  uint64_t end = 0;

  bool holds(uint64_t address, uint64_t bytes) const {
    return address >= begin && address + bytes <= end;
  }
};

// Every range that a kernel may touch: allocations, variables and parameters. Device addresses are
// host addresses. Safe to use from several threads.
class Allocations {
 public:
  void add(const void* begin, size_t bytes);
  bool remove(const void* begin);  // false: not the beginning of a range
  std::optional<Range> find(uint64_t address, uint64_t bytes) const;
  size_t total_bytes() const;
  uint64_t version() const { return version_; }  // changes whenever a range does

 private:
  mutable std::mutex mutex_;
  std::map<uint64_t, uint64_t> end_of_;  // by beginning
  std::atomic<uint64_t> version_ = 0;
};
Allocations& allocations();

// Memory that kernels may touch as long as this object lives.
class DeviceMemory {
 public:
  explicit DeviceMemory(size_t bytes);  // uninitialised
  ~DeviceMemory();
  DeviceMemory(DeviceMemory&&) = default;
  DeviceMemory& operator=(DeviceMemory&&) = delete;

  char* data() const { return data_.get(); }

 private:
  struct Free {
    void operator()(char* memory) const { std::free(memory); }
  };
  std::unique_ptr<char, Free> data_;
};

}  // namespace tessera::emulator
