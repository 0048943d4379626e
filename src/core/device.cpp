// Devices as seen by every build: names, CPU memory, and the way to the GPU's half.
// SPDX-License-Identifier: MIT
#include "tessera/core/device.h"

#include <cstdlib>
#include <cstring>
#include <limits>

#include "core/device_backend.h"
#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera {
namespace {

constexpr size_t kCpuAlignment = 64;  // a cache line, and the widest vector register

void* allocate_cpu(size_t num_bytes) {
  void* data = nullptr;
  if (num_bytes <= std::numeric_limits<size_t>::max() - kCpuAlignment) {
    // aligned_alloc wants a whole number of alignments.
    const size_t rounded = (num_bytes + kCpuAlignment - 1) / kCpuAlignment * kCpuAlignment;
    data = std::aligned_alloc(kCpuAlignment, rounded);
  }
  if (data == nullptr) fail(concat("allocate: no room for ", num_bytes, " bytes on cpu"));
  return data;
}

}  // namespace

std::string to_string(Device device) {
  return device.is_cpu() ? "cpu" : concat("cuda:", device.index);
}

void* allocate(Device device, size_t num_bytes) {
  if (num_bytes == 0) return nullptr;
  return device.is_cpu() ? allocate_cpu(num_bytes) : backend::allocate(device, num_bytes);
}

void deallocate(Device device, void* data) noexcept {
  if (data == nullptr) return;
  if (device.is_cpu()) {
    std::free(data);
  } else {
    backend::deallocate(device, data);
  }
}

void copy_bytes(void* to, Device to_device, const void* from, Device from_device, size_t num_bytes,
                Stream stream) {
  if (num_bytes == 0) return;
  if (to_device.is_cpu() && from_device.is_cpu()) {
    std::memcpy(to, from, num_bytes);
  } else {
    backend::copy_bytes(to, to_device, from, from_device, num_bytes, stream);
  }
}

void fill_bytes(void* data, Device device, uint8_t value, size_t num_bytes, Stream stream) {
  if (num_bytes == 0) return;
  if (device.is_cpu()) {
    std::memset(data, value, num_bytes);
  } else {
    backend::fill_bytes(data, device, value, num_bytes, stream);
  }
}

void synchronize(Device device, Stream stream) {
  if (!device.is_cpu()) backend::synchronize(device, stream);
}

}  // namespace tessera
