// Parts of a checkpoint's matrices read into memory.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/safetensors.h"
#include "tessera/core/convert.h"
#include "tessera/core/tensor.h"

namespace tessera::model {

// Rows [row, row + num_rows) and columns [col, col + num_cols) of a matrix; a vector is a row.
struct Strip {
  int64_t row = 0;
  int64_t num_rows = 1;
  int64_t col = 0;
  int64_t num_cols = 1;
};

// T has the size of the tensor's elements.
template <class T>
std::vector<T> read_strip(const StoredTensor& tensor, const Strip& strip) {
  const int64_t width = tensor.shape.empty() ? 1 : tensor.shape.back();
  std::vector<T> elements(static_cast<size_t>(strip.num_rows * strip.num_cols));
  const auto size = static_cast<int64_t>(sizeof(T));
  const bool is_run = strip.num_cols == width;
  const int64_t runs = is_run ? 1 : strip.num_rows;
  const int64_t count = is_run ? strip.num_rows * strip.num_cols : strip.num_cols;
  for (int64_t i = 0; i < runs && count > 0; ++i) {
    const int64_t first = (strip.row + i) * width + strip.col;
    tensor.file->read(
        tensor.begin + first * size,
        std::as_writable_bytes(std::span(elements.data() + i * count, static_cast<size_t>(count))));
  }
  return elements;
}

// Of a tensor of f32, f16 or bf16.
inline std::vector<float> read_floats(const StoredTensor& tensor, const Strip& strip) {
  if (*tensor.dtype == DType::f32) return read_strip<float>(tensor, strip);
  std::vector<uint16_t> halves = read_strip<uint16_t>(tensor, strip);
  std::vector<float> floats(halves.size());
  const auto count = static_cast<int64_t>(halves.size());
  convert(TensorView::contiguous(halves.data(), *tensor.dtype, {count}),
          TensorView::contiguous(floats.data(), DType::f32, {count}));
  return floats;
}

}  // namespace tessera::model
