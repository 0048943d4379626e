// DLTensors for tests: a vector with a shape, in CPU memory.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/c.h"

namespace tessera::testing {

template <class T>
inline constexpr DLDataType kDlType = {};
template <>
inline constexpr DLDataType kDlType<float> = {kDLFloat, 32, 1};
template <>
inline constexpr DLDataType kDlType<int8_t> = {kDLInt, 8, 1};
template <>
inline constexpr DLDataType kDlType<uint8_t> = {kDLUInt, 8, 1};
template <>
inline constexpr DLDataType kDlType<int32_t> = {kDLInt, 32, 1};
template <>
inline constexpr DLDataType kDlType<int64_t> = {kDLInt, 64, 1};

// Owns its elements; `dl` may be changed by a test to make it a bad tensor.
template <class T>
struct Array {
  explicit Array(std::vector<int64_t> sizes, std::vector<T> elements = {})
      : shape(std::move(sizes)), values(std::move(elements)) {
    int64_t count = 1;
    for (int64_t size : shape) count *= size;
    values.resize(static_cast<size_t>(count));
    dl.data = values.data();
    dl.device = {kDLCPU, 0};
    dl.ndim = static_cast<int>(shape.size());
    dl.dtype = kDlType<T>;
    dl.shape = shape.data();
    dl.strides = nullptr;
    dl.byte_offset = 0;
  }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  operator const DLTensor*() const { return &dl; }

  std::vector<int64_t> shape;
  std::vector<T> values;
  DLTensor dl{};
};

}  // namespace tessera::testing
