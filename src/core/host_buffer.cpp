// Host memory, pinned where a GPU reads or writes it.
// SPDX-License-Identifier: MIT
#include "tessera/core/host_buffer.h"

#include <utility>

#include "core/device_backend.h"

namespace tessera {

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
