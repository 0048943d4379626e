// Llama.
// SPDX-License-Identifier: MIT
#include "model/families/llama.h"

namespace tessera::model {

LlamaBlock::LlamaBlock(const WeightScope& scope, const ModelConfig& config, int64_t layer)
    : LlamaBlock(scope, config, {.layer = layer, .qkv = Attention::separate_qkv(config)},
                 Mlp::separate(config)) {}

LlamaBlock::LlamaBlock(const WeightScope& scope, const ModelConfig& config,
                       const Attention::Options& attention, const Mlp::Options& mlp)
    : attention_norm_(scope, "input_layernorm", config.hidden, {.eps = config.norm_eps}),
      attention_(scope.at("self_attn"), config, attention),
      mlp_norm_(scope, "post_attention_layernorm", config.hidden, {.eps = config.norm_eps}),
      mlp_(scope.at("mlp"), config, mlp) {}

void LlamaBlock::forward(Stream& stream, Step& step) const {
  attention_.add_to(stream, attention_norm_, step);
  mlp_.add_to(stream, mlp_norm_, step);
}

std::unique_ptr<Model> make_llama(const ModelConfig& config, Weights& weights) {
  return std::make_unique<Decoder<LlamaBlock>>(config, weights,
                                               Norm::Options{.eps = config.norm_eps});
}

extern const Family kLlama = {.model_type = "llama",
                              .class_name = "LlamaForCausalLM",
                              .read = &read_biases,
                              .make = &make_llama};

}  // namespace tessera::model
