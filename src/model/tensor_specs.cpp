// The names and shapes of a Llama's tensors, as Hugging Face writes them.
// SPDX-License-Identifier: MIT
#include "core/text.h"
#include "model/weight_source.h"
#include "tessera/core/error.h"

namespace tessera::model {
namespace {

struct LayerTensor {
  std::string_view name;
  int64_t num_rows;
  int64_t num_cols;
  bool is_vector;
  bool is_present;
};

std::vector<LayerTensor> layer_tensors(const ModelConfig& config) {
  const int64_t hidden = config.hidden;
  const int64_t inter = config.inter;
  const int64_t q = config.num_heads * config.head_dim;
  const int64_t kv = config.num_kv_heads * config.head_dim;
  const bool has_qkv = config.has_qkv_bias;
  const bool has_mlp = config.has_mlp_bias;
  return {
      {"input_layernorm.weight", hidden, 1, true, true},
      {"self_attn.q_proj.weight", q, hidden, false, true},
      {"self_attn.k_proj.weight", kv, hidden, false, true},
      {"self_attn.v_proj.weight", kv, hidden, false, true},
      {"self_attn.o_proj.weight", hidden, q, false, true},
      {"self_attn.q_proj.bias", q, 1, true, has_qkv},
      {"self_attn.k_proj.bias", kv, 1, true, has_qkv},
      {"self_attn.v_proj.bias", kv, 1, true, has_qkv},
      {"self_attn.o_proj.bias", hidden, 1, true, config.has_output_bias},
      {"post_attention_layernorm.weight", hidden, 1, true, true},
      {"mlp.gate_proj.weight", inter, hidden, false, true},
      {"mlp.up_proj.weight", inter, hidden, false, true},
      {"mlp.down_proj.weight", hidden, inter, false, true},
      {"mlp.gate_proj.bias", inter, 1, true, has_mlp},
      {"mlp.up_proj.bias", inter, 1, true, has_mlp},
      {"mlp.down_proj.bias", hidden, 1, true, has_mlp},
  };
}

TensorSpec make_spec(int64_t layer, const LayerTensor& tensor) {
  return {concat("model.layers.", layer, ".", tensor.name), tensor.num_rows, tensor.num_cols,
          tensor.is_vector};
}

}  // namespace

TensorSpec embedding_spec(const ModelConfig& config) {
  return {"model.embed_tokens.weight", config.vocab, config.hidden, false};
}

TensorSpec final_norm_spec(const ModelConfig& config) {
  return {"model.norm.weight", config.hidden, 1, true};
}

TensorSpec head_spec(const ModelConfig& config) {
  if (config.has_tied_embeddings) return embedding_spec(config);
  return {"lm_head.weight", config.vocab, config.hidden, false};
}

TensorSpec layer_spec(const ModelConfig& config, int64_t layer, std::string_view name) {
  for (const LayerTensor& tensor : layer_tensors(config)) {
    if (tensor.name == name) return make_spec(layer, tensor);
  }
  fail(concat("layer_spec: a layer has no tensor '", name, "'"));
}

std::vector<TensorSpec> tensor_specs(const ModelConfig& config) {
  std::vector<TensorSpec> specs = {embedding_spec(config), final_norm_spec(config)};
  if (!config.has_tied_embeddings) specs.push_back(head_spec(config));
  const std::vector<LayerTensor> tensors = layer_tensors(config);
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    for (const LayerTensor& tensor : tensors) {
      if (tensor.is_present) specs.push_back(make_spec(layer, tensor));
    }
  }
  return specs;
}

}  // namespace tessera::model
