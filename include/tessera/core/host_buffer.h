// Host memory for data copied between the host and a GPU.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>

#include "tessera/core/device.h"

namespace tessera {

// Pinned if `device` is a GPU: copies run at full bus speed and asynchronously, so wait for the
// stream before writing the buffer again. Ordinary memory if `device` is the CPU.
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
