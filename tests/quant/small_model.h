// A folder with a small model of random weights, for tests that quantise whole checkpoints.
// SPDX-License-Identifier: MIT
#pragma once

#include <cmath>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "model/model.h"
#include "tests/model/stored_file.h"
#include "tests/model/temporary_folder.h"
#include "tests/quant/cases.h"

namespace tessera::testing {

// Two layers, hidden 64; `more` is added to config.json.
inline std::string small_config(std::string_view family, std::string_view more = "") {
  return std::string(R"({"model_type": ")") + std::string(family) +
         R"(", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
             "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
             "vocab_size": 128, "max_position_embeddings": 256, "rms_norm_eps": 1e-5,
             "rope_theta": 10000.0, "torch_dtype": "bfloat16")" +
         std::string(more) + "}";
}

inline void write_small_model(const TemporaryFolder& folder, std::string_view family,
                              std::string_view more = "") {
  const std::string config = small_config(family, more);
  folder.write("config.json", config);
  folder.write("tokenizer.json", "{}");
  const auto dry = model::make_dry_model(model::parse_config(config, "config.json"), {});
  std::vector<FileTensor> tensors;
  uint32_t seed = 1;
  for (const model::TensorSpec& spec : dry->weights().specs()) {
    FileTensor tensor{
        .name = spec.name, .shape = {spec.num_rows}, .values = {}, .dtype = DType::bf16};
    if (!spec.is_vector) tensor.shape.push_back(spec.num_cols);
    std::mt19937 random(seed++);
    const float middle = spec.random_value.value_or(0.0f);
    // Norms differ from column to column, as AWQ and SmoothQuant expect.
    const float spread =
        spec.is_vector ? 0.3f : 1.0f / std::sqrt(static_cast<float>(spec.num_cols));
    for (int64_t i = 0; i < spec.num_rows * spec.num_cols; ++i) {
      tensor.values.push_back(middle + spread * normal(random));
    }
    tensors.push_back(std::move(tensor));
  }
  folder.write("model.safetensors", stored_tensors(tensors));
}

inline std::vector<std::vector<int32_t>> random_samples(int64_t count, int64_t length,
                                                        uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::vector<int32_t>> samples(static_cast<size_t>(count));
  for (std::vector<int32_t>& sample : samples) {
    for (int64_t i = 0; i < length; ++i) sample.push_back(static_cast<int32_t>(random() % 128));
  }
  return samples;
}

// The bytes of every file of a folder.
inline std::map<std::string, std::string> files_of(const std::filesystem::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream in(entry.path(), std::ios::binary);
    std::ostringstream bytes;
    bytes << in.rdbuf();
    files[entry.path().filename().string()] = bytes.str();
  }
  return files;
}

}  // namespace tessera::testing
