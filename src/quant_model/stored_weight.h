// Quantised weights as files hold them: compressed-tensors and GPTQ.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/safetensors.h"
#include "tessera/quant/quantize_model.h"

namespace tessera::quant {

// A tensor as a safetensors file holds it. One of the last three has its bytes.
struct FileTensor {
  std::string name;
  std::string_view type;  // "BF16", "I32", ...
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes = {};
  std::span<const std::byte> lent = {};         // memory that outlives this
  const model::StoredTensor* copied = nullptr;  // another file

  size_t num_bytes() const {
    if (copied != nullptr) return static_cast<size_t>(copied->num_bytes);
    return lent.empty() ? bytes.size() : lent.size();
  }
};

std::string_view stored_type(DType dtype);
// Values in one of the types of a file. `values` is f32.
FileTensor plain_tensor(std::string name, const TensorView& values, DType dtype,
                        std::vector<int64_t> shape);

FileTensor scale_tensor(std::string name, float scale);  // f32 [1]

// Whether codes of whole bytes are packed into words: where inputs stay as they are, readers of
// compressed-tensors expect int8 weights in that form.
struct StoredForm {
  FileFormat files = FileFormat::compressed_tensors;
  QuantFormat format;
  bool packs_int8 = false;
};

// The tensors of `module`, which had its weight in module + ".weight". They may lend the codes of
// `weight`, which must outlive them.
std::vector<FileTensor> to_stored(const std::string& module, const QuantizedWeight& weight,
                                  const StoredForm& form);
// Writes a safetensors file under another name and renames it when it is complete. Returns its
// size.
int64_t write_tensors(const std::filesystem::path& path, const std::vector<FileTensor>& tensors);
void write_text(const std::filesystem::path& path, std::string_view text);

}  // namespace tessera::quant
