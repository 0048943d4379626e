// Qwen3: a Llama whose queries and keys are normalised head by head.
// SPDX-License-Identifier: MIT
#include "model/families/llama.h"

namespace tessera::model {
namespace {

class Qwen3Block : public LlamaBlock {
 public:
  Qwen3Block(const WeightScope& scope, const ModelConfig& config, int64_t layer)
      : LlamaBlock(scope, config,
                   {.layer = layer, .qkv = Attention::separate_qkv(config), .norm = QkNorm::heads},
                   Mlp::separate(config)) {}
};

void read_qwen3(const Fields& fields, ModelConfig& config) {
  config.has_qkv_bias = config.has_output_bias = fields.flag("attention_bias", false);
  read_late_window(fields, config);
}

std::unique_ptr<Model> make_qwen3(const ModelConfig& config, Weights& weights) {
  return std::make_unique<Decoder<Qwen3Block>>(config, weights,
                                               Norm::Options{.eps = config.norm_eps});
}

}  // namespace

extern const Family kQwen3 = {.model_type = "qwen3",
                              .class_name = "Qwen3ForCausalLM",
                              .read = &read_qwen3,
                              .make = &make_qwen3,
                              .head_dim = 128};

}  // namespace tessera::model
