// A model's shape as its config.json gives it, checked before anything is allocated.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/core/dtype.h"
#include "tessera/ops/activation.h"
#include "tessera/ops/rope.h"

namespace tessera::model {

enum class Architecture : uint8_t { llama, mistral, qwen2 };
std::string_view name(Architecture architecture);  // "llama"

// What parse_config accepts at most. Far beyond any model there is, and small enough that every
// product of sizes fits in 64 bits, so that a hostile file is refused before memory is asked for.
inline constexpr int64_t kMaxLayers = 1024;
inline constexpr int64_t kMaxHidden = 1 << 18;
inline constexpr int64_t kMaxInter = 1 << 20;
inline constexpr int64_t kMaxHeads = 4096;
inline constexpr int64_t kMaxHeadDim = 1024;
inline constexpr int64_t kMaxVocab = 1 << 24;
inline constexpr int64_t kMaxPositions = 1 << 26;

struct ModelConfig {
  Architecture architecture = Architecture::llama;
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
  int64_t window = 0;                // sliding window; 0: none
  int64_t first_windowed_layer = 0;  // layers before it see everything (Qwen2's max_window_layers)
  DType dtype = DType::bf16;         // the one the checkpoint names; f32 where it names none
  std::optional<int32_t> bos_token = {};
  std::vector<int32_t> eos_tokens = {};

  int64_t window_of(int64_t layer) const { return layer >= first_windowed_layer ? window : 0; }
  int64_t num_parameters() const;
  // Keys and values of one token over all layers.
  int64_t kv_bytes_per_token(DType kv_dtype) const;
};

// Refuses, naming the key and showing its value, what is missing, out of range or not supported.
// `origin` is what messages call the text: the file's name. Reads both spellings of RoPE: the key
// rope_parameters, or rope_theta and rope_scaling.
ModelConfig parse_config(std::string_view json, std::string_view origin);
// config.json of a folder; generation_config.json, where there is one, may add stop tokens. Files
// of more than 1 MiB are refused.
ModelConfig load_config(const std::filesystem::path& folder);

// Shapes by name for benches with random weights: "llama3-8b", "llama3.2-1b", "tessera-13m", ...
std::optional<ModelConfig> find_preset(std::string_view name);
std::vector<std::string_view> preset_names();

}  // namespace tessera::model
