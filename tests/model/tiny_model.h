// A small Llama as a checkpoint, for tests that need every kind of tensor.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/model.h"
#include "tests/model/stored_file.h"
#include "tests/model/temporary_folder.h"

namespace tessera::testing {

inline model::ModelConfig tiny_config() {
  model::ModelConfig config;
  config.num_layers = 2;
  config.hidden = 64;
  config.inter = 96;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 64;
  config.vocab = 128;
  config.max_positions = 256;
  config.dtype = DType::f32;
  return config;
}

// A value by its place, exact in every type: multiples of 1/8 between -8 and 8.
inline float value_at(const std::string& name, int64_t row, int64_t col) {
  uint32_t hash = 2166136261u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  hash += static_cast<uint32_t>(row) * 7919u + static_cast<uint32_t>(col) * 104729u;
  return static_cast<float>(static_cast<int32_t>(hash >> 8 & 127u) - 64) / 8.0f;
}

inline std::vector<FileTensor> tiny_tensors(const model::ModelConfig& config,
                                            DType dtype = DType::f32) {
  std::vector<FileTensor> tensors;
  const auto dry = model::make_dry_model(config, {});
  for (const model::TensorSpec& spec : dry->weights().specs()) {
    FileTensor tensor{.name = spec.name, .shape = {spec.num_rows}, .values = {}, .dtype = dtype};
    if (!spec.is_vector) tensor.shape.push_back(spec.num_cols);
    for (int64_t row = 0; row < spec.num_rows; ++row) {
      for (int64_t col = 0; col < spec.num_cols; ++col) {
        tensor.values.push_back(value_at(spec.name, row, col));
      }
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

}  // namespace tessera::testing
