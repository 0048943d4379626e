// An array on the GPU for the tests of tile/: filled from a vector, read back as one.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/core/device.h"

namespace tessera::testing {

template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    copy_bytes(data_, cuda_device(), values.data(), cpu_device(), size_ * sizeof(T));
  }
  // Every byte 0xff: NaN in floating point, so that what no kernel wrote is seen.
  explicit DeviceArray(size_t size)
      : data_(static_cast<T*>(allocate(cuda_device(), size * sizeof(T)))), size_(size) {
    fill_bytes(data_, cuda_device(), 0xff, size * sizeof(T));
  }
  ~DeviceArray() { deallocate(cuda_device(), data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() { return data_; }

  // Waits for the kernels before it.
  std::vector<T> read() const {
    std::vector<T> values(size_);
    copy_bytes(values.data(), cpu_device(), data_, cuda_device(), size_ * sizeof(T));
    synchronize(cuda_device());
    return values;
  }

 private:
  T* data_;
  size_t size_;
};

}  // namespace tessera::testing
