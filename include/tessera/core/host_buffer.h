// Host memory for what travels between the host and a GPU.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>

#include "tessera/core/device.h"

namespace tessera {

// Pinned where `device` is a GPU: copies run at the full speed of the bus and beside the host, so
// who writes the buffer again must first wait for the stream. Ordinary memory for the CPU.
class HostBuffer {
 public:
  HostBuffer() = default;
  HostBuffer(Device device, size_t num_bytes);
  HostBuffer(HostBuffer&& other) noexcept;
  HostBuffer& operator=(HostBuffer&& other) noexcept;
  ~HostBuffer();

  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  size_t size_bytes() const { return size_bytes_; }

 private:
  Device device_ = {};
  void* data_ = nullptr;
  size_t size_bytes_ = 0;
};

}  // namespace tessera
