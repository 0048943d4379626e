// Shapes of well-known models, for benches with random weights.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <iterator>

#include "model/config.h"

namespace tessera::model {
namespace {

constexpr RopeScaling kLlama31 = {
    .kind = RopeScalingKind::llama3, .factor = 8.0, .original_max_positions = 8192};
constexpr RopeScaling kLlama32 = {
    .kind = RopeScalingKind::llama3, .factor = 32.0, .original_max_positions = 8192};

struct Preset {
  std::string_view name;
  std::string_view architecture;
  int64_t num_layers, hidden, inter, num_heads, num_kv_heads, head_dim, vocab, max_positions;
  double rope_theta;
  RopeScaling rope_scaling;
  float norm_eps;
  bool has_tied_embeddings;
  int64_t window;
};

// Layers, hidden, inter, heads, KV heads, head_dim, vocab, positions; theta, scaling, eps.
constexpr Preset kPresets[] = {
    {"tessera-13m", "llama", 6, 384, 1024, 6, 2, 64, 8192, 2048, 1e4, {}, 1e-5f, true, 0},
    {"llama2-7b", "llama", 32, 4096, 11008, 32, 32, 128, 32000, 4096, 1e4, {}, 1e-5f, false, 0},
    {"llama2-13b", "llama", 40, 5120, 13824, 40, 40, 128, 32000, 4096, 1e4, {}, 1e-5f, false, 0},
    {"llama2-70b", "llama", 80, 8192, 28672, 64, 8, 128, 32000, 4096, 1e4, {}, 1e-5f, false, 0},
    {"llama3-8b", "llama", 32, 4096, 14336, 32, 8, 128, 128256, 8192, 5e5, {}, 1e-5f, false, 0},
    {"llama3-70b", "llama", 80, 8192, 28672, 64, 8, 128, 128256, 8192, 5e5, {}, 1e-5f, false, 0},
    {"llama3.1-8b", "llama", 32, 4096, 14336, 32, 8, 128, 128256, 131072, 5e5, kLlama31, 1e-5f,
     false, 0},
    {"llama3.1-70b", "llama", 80, 8192, 28672, 64, 8, 128, 128256, 131072, 5e5, kLlama31, 1e-5f,
     false, 0},
    {"llama3.2-1b", "llama", 16, 2048, 8192, 32, 8, 64, 128256, 131072, 5e5, kLlama32, 1e-5f, true,
     0},
    {"llama3.2-3b", "llama", 28, 3072, 8192, 24, 8, 128, 128256, 131072, 5e5, kLlama32, 1e-5f, true,
     0},
    {"mistral-7b",
     "mistral",
     32,
     4096,
     14336,
     32,
     8,
     128,
     32000,
     32768,
     1e4,
     {},
     1e-5f,
     false,
     4096},
    {"qwen2-0.5b", "qwen2", 24, 896, 4864, 14, 2, 64, 151936, 131072, 1e6, {}, 1e-6f, true, 0},
    {"qwen2-1.5b", "qwen2", 28, 1536, 8960, 12, 2, 128, 151936, 131072, 1e6, {}, 1e-6f, true, 0},
    {"qwen2-7b", "qwen2", 28, 3584, 18944, 28, 4, 128, 152064, 131072, 1e6, {}, 1e-6f, false, 0},
};

}  // namespace

std::optional<ModelConfig> find_preset(std::string_view name) {
  const auto preset = std::ranges::find(kPresets, name, &Preset::name);
  if (preset == std::end(kPresets)) return std::nullopt;
  ModelConfig config;
  config.architecture = preset->architecture;
  config.num_layers = preset->num_layers;
  config.hidden = preset->hidden;
  config.inter = preset->inter;
  config.num_heads = preset->num_heads;
  config.num_kv_heads = preset->num_kv_heads;
  config.head_dim = preset->head_dim;
  config.vocab = preset->vocab;
  config.max_positions = preset->max_positions;
  config.rope_theta = preset->rope_theta;
  config.rope_scaling = preset->rope_scaling;
  config.norm_eps = preset->norm_eps;
  config.has_qkv_bias = preset->architecture == "qwen2";
  config.has_tied_embeddings = preset->has_tied_embeddings;
  config.window = preset->window;
  return config;
}

std::vector<std::string_view> preset_names() {
  std::vector<std::string_view> names;
  for (const Preset& preset : kPresets) names.push_back(preset.name);
  return names;
}

}  // namespace tessera::model
