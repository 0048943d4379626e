// A model's shape as its config.json describes it, checked before anything is allocated.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/core/dtype.h"
#include "tessera/ops/activation.h"
#include "tessera/ops/rope.h"

namespace tessera::model {

// The largest sizes parse_config accepts: far beyond any model there is, and small enough that
// every product of sizes fits in 64 bits, so that a hostile file is refused before memory is asked
// for.
inline constexpr int64_t kMaxLayers = 1024;
inline constexpr int64_t kMaxHidden = 1 << 18;
inline constexpr int64_t kMaxInter = 1 << 20;
inline constexpr int64_t kMaxHeads = 4096;
inline constexpr int64_t kMaxHeadDim = 1024;
inline constexpr int64_t kMaxVocab = 1 << 24;
inline constexpr int64_t kMaxPositions = 1 << 26;

class StoredFormats;

struct ModelConfig {
  std::string architecture = "llama";  // the family, by its model_type (family.h)
  int64_t num_layers = 0;
  int64_t hidden = 0;
  int64_t inter = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t vocab = 0;
  int64_t max_positions = 0;  // the longest context the model was made for, scaling included
  double rope_theta = 10000.0;
  RopeScaling rope_scaling = {};
  float norm_eps = 1e-5f;
  Activation activation = Activation::silu;
  bool has_qkv_bias = false;
  bool has_output_bias = false;  // of the attention's output projection
  bool has_mlp_bias = false;
  bool has_tied_embeddings = false;
  int64_t window = 0;  // tokens that a windowed layer sees, the newest among them; 0: no windows
  std::vector<bool> windowed_layers = {};  // by layer; empty: all of them
  float attention_scale = 0.0f;            // of scores; 0: 1 / sqrt(head_dim)
  float attention_softcap = 0.0f;          // of scores; 0: none
  float embedding_scale = 1.0f;
  float residual_scale = 1.0f;  // of what a block adds to the residual stream
  float logit_scale = 1.0f;
  float logit_softcap = 0.0f;  // 0: none
  DType dtype = DType::bf16;   // the one the checkpoint names; f32 where it names none
  std::optional<int32_t> bos_token = {};
  std::vector<int32_t> eos_tokens = {};
  std::shared_ptr<const StoredFormats> formats = {};  // of quantised weights; null: there are none

  // The window of one layer; 0: it sees everything.
  int64_t window_of(int64_t layer) const {
    const bool has_window = windowed_layers.empty() || windowed_layers[static_cast<size_t>(layer)];
    return has_window ? window : 0;
  }
  int64_t num_parameters() const;
  // Keys and values of one token over all layers.
  int64_t kv_bytes_per_token(DType kv_dtype) const;
};

// Refuses, naming the key and showing its value, what is missing, out of range or not supported.
// `origin` is what messages call the text: the file's name. Reads both spellings of RoPE: the key
// rope_parameters, or rope_theta and rope_scaling.
ModelConfig parse_config(std::string_view json, std::string_view origin);
// That of a GGUF file, or config.json of a folder; generation_config.json, where there is one, may
// add stop tokens. Such files of more than 1 MiB are refused. Of a quantised
// model the headers of the weight files are read as well: they give the types of scales.
ModelConfig load_config(const std::filesystem::path& folder);

// Shapes by name for benches with random weights: "llama3-8b", "llama3.2-1b", "tessera-13m", ...
std::optional<ModelConfig> find_preset(std::string_view name);
std::vector<std::string_view> preset_names();

}  // namespace tessera::model
