// Devices in every build: names, CPU memory and pinned memory; GPU work goes to device_backend.h.
// SPDX-License-Identifier: MIT
#include "tessera/core/device.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <limits>
#include <utility>

#include "core/device_backend.h"
#include "core/memory_count.h"
#include "core/text.h"
#include "tessera/core/error.h"
#include "tessera/core/host_buffer.h"
#include "tessera/core/own_stream.h"

namespace tessera {
namespace {

constexpr size_t kCpuAlignment = 64;  // a cache line, and the widest vector register
constexpr size_t kHugePage = size_t{2} << 20;

void* allocate_cpu(size_t num_bytes) {
  // Huge pages: with 4 KiB pages nearly every page of a KV cache would miss the TLB.
  const bool is_huge = num_bytes >= kHugePage;
  const size_t alignment = is_huge ? kHugePage : kCpuAlignment;
  void* data = nullptr;
  if (num_bytes <= std::numeric_limits<size_t>::max() - alignment) {
    // aligned_alloc needs a multiple of the alignment.
    const size_t rounded = (num_bytes + alignment - 1) / alignment * alignment;
    data = std::aligned_alloc(alignment, rounded);
    // Only a hint: without huge pages the system uses ordinary ones.
    if (data != nullptr && is_huge) (void)madvise(data, rounded, MADV_HUGEPAGE);
  }
  if (data == nullptr) {
    throw OutOfMemory(concat("allocate: no room for ", num_bytes, " bytes on cpu"));
  }
  return data;
}

void free_uncounted(Device device, void* data) noexcept {
  if (device.is_cpu()) {
    std::free(data);
  } else {
    backend::deallocate(device, data);
  }
}

}  // namespace

std::string to_string(Device device) {
  return device.is_cpu() ? "cpu" : concat("cuda:", device.index);
}

void* allocate(Device device, size_t num_bytes) {
  if (num_bytes == 0) return nullptr;
  void* data = device.is_cpu() ? allocate_cpu(num_bytes) : backend::allocate(device, num_bytes);
  try {
    count_allocated(device, data, num_bytes);
  } catch (...) {
    free_uncounted(device, data);
    throw;
  }
  return data;
}

void* allocate_zeros(Device device, size_t num_bytes) {
  void* data = allocate(device, num_bytes);
  // Pages released by MADV_DONTNEED read as zeros and take no memory until they are written.
  const bool is_released =
      device.is_cpu() && num_bytes >= kHugePage && madvise(data, num_bytes, MADV_DONTNEED) == 0;
  if (!is_released) fill_bytes(data, device, 0, num_bytes);
  return data;
}

void deallocate(Device device, void* data) noexcept {
  if (data == nullptr) return;
  count_freed(device, data);
  free_uncounted(device, data);
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

OwnStream::OwnStream(Device device)
    : device_(device), stream_(device.is_cpu() ? nullptr : backend::create_stream(device)) {}

OwnStream::OwnStream(OwnStream&& other) noexcept
    : device_(other.device_), stream_(std::exchange(other.stream_, nullptr)) {}

OwnStream& OwnStream::operator=(OwnStream&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(stream_, other.stream_);
  return *this;
}

OwnStream::~OwnStream() {
  if (stream_ != nullptr) backend::destroy_stream(device_, stream_);
}

HostBuffer::HostBuffer(Device device, size_t num_bytes) : device_(device), size_bytes_(num_bytes) {
  if (num_bytes == 0) return;
  data_ = device.is_cpu() ? allocate(device, num_bytes) : backend::allocate_pinned(num_bytes);
}

HostBuffer::HostBuffer(HostBuffer&& other) noexcept
    : device_(other.device_),
      data_(std::exchange(other.data_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)) {}

HostBuffer& HostBuffer::operator=(HostBuffer&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
  return *this;
}

HostBuffer::~HostBuffer() {
  if (data_ == nullptr) return;
  if (device_.is_cpu()) {
    deallocate(device_, data_);
  } else {
    backend::deallocate_pinned(data_);
  }
}

}  // namespace tessera
