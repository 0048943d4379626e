// The table of model families: what config.json calls them, how it is read, and who makes them. A
// new family is a file in families/ and its line in families/table.cpp.
// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "model/config.h"
#include "model/config_fields.h"
#include "model/model.h"

namespace tessera::model {

struct Family {
  std::string_view model_type;  // "llama"
  std::string_view class_name;  // "LlamaForCausalLM"
  // Reads what only this family has, after all that is common to every family.
  void (*read)(const Fields& fields, ModelConfig& config);
  std::unique_ptr<Model> (*make)(const ModelConfig& config, Weights& weights);
  // What config.json may leave out.
  bool ties_embeddings = false;
  int64_t head_dim = 0;  // 0: hidden_size / num_attention_heads
};

std::span<const Family* const> families();
// The family of config.architecture; refuses a name that is none.
const Family& family_of(const ModelConfig& config);

// For families' read functions. An activation by name:
Activation read_activation(const Fields& fields, std::string_view key, std::string_view absent);
// attention_bias (of q, k, v and the output) and mlp_bias:
void read_biases(const Fields& fields, ModelConfig& config);
// sliding_window, for the layers that layer_types names or, where there is no such list, for those
// that config.windowed_layers says:
void read_window(const Fields& fields, ModelConfig& config);
// The same where use_sliding_window is set, by default from layer max_window_layers on:
void read_late_window(const Fields& fields, ModelConfig& config);

}  // namespace tessera::model
