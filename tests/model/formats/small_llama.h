// A Llama of two layers, small enough to compute and large enough for blocks of 128.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "model/model.h"
#include "tests/model/formats/quantized_files.h"
#include "tests/model/temporary_folder.h"

namespace tessera::testing {

inline std::string config_json(const std::string& quantization) {
  const std::string shape = R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"],
      "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2,
      "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 64, "vocab_size": 128,
      "max_position_embeddings": 256, "torch_dtype": "float32")";
  return shape + (quantization.empty() ? "}" : R"(, "quantization_config": )" + quantization + "}");
}

inline bool is_linear(const std::string& name) { return name.find("_proj.") != std::string::npos; }

inline RawTensor values_of(const std::string& name, const std::vector<int64_t>& shape,
                           uint32_t seed) {
  std::mt19937 random(seed);
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    const float value = static_cast<float>(static_cast<int>(random() % 256) - 128) / 128.0f;
    values.push_back(shape.size() == 1 ? 1.0f + value / 8 : value);
  }
  return raw(name, "F32", shape, values);
}

inline std::unique_ptr<model::Model> load(const TemporaryFolder& folder,
                                          const model::LoadOptions& options) {
  const model::ModelConfig config = model::load_config(folder.path());
  return load_model(model::Checkpoint::open(folder.path()), config, options);
}

}  // namespace tessera::testing
