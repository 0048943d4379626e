// safetensors files written by tests, valid and broken.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/core/convert.h"
#include "tessera/core/tensor.h"

namespace tessera::testing {

// The eight bytes of length, the header, the data; `length` may be wrong.
inline std::string stored_file(std::string_view header, std::string_view data, uint64_t length) {
  std::string file;
  for (int i = 0; i < 8; ++i) file += static_cast<char>(length >> (8 * i) & 0xff);
  file += header;
  file += data;
  return file;
}
inline std::string stored_file(std::string_view header, std::string_view data = {}) {
  return stored_file(header, data, header.size());
}

inline std::span<const std::byte> as_bytes_of(const std::string& file) {
  return std::as_bytes(std::span(file));
}

// A tensor to be written: float values, stored in one of the three types.
struct FileTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<float> values;
  DType dtype = DType::f32;
};

inline std::string_view stored_name(DType dtype) {
  return dtype == DType::f32 ? "F32" : dtype == DType::f16 ? "F16" : "BF16";
}

// Tensors one after the other. `padding` spaces lengthen the header, which moves the data: an odd
// number leaves it misaligned.
inline std::string stored_tensors(const std::vector<FileTensor>& tensors, size_t padding = 0) {
  nlohmann::json header = nlohmann::json::object();
  header["__metadata__"] = {{"format", "pt"}};
  std::string data;
  for (const FileTensor& tensor : tensors) {
    const auto count = static_cast<int64_t>(tensor.values.size());
    Tensor values(tensor.dtype, {count});
    convert(TensorView::contiguous(const_cast<float*>(tensor.values.data()), DType::f32, {count}),
            values);
    const size_t begin = data.size();
    data.append(values.view().as<const char>(), static_cast<size_t>(values.size_bytes()));
    header[tensor.name] = {{"dtype", stored_name(tensor.dtype)},
                           {"shape", tensor.shape},
                           {"data_offsets", {begin, data.size()}}};
  }
  std::string text = header.dump();
  while ((8 + text.size()) % 8 != 0) text += ' ';
  return stored_file(text + std::string(padding, ' '), data);
}

}  // namespace tessera::testing
