// Phi-3: a Llama whose checkpoint holds queries, keys and values in one tensor, and gate and up in
// another.
// SPDX-License-Identifier: MIT
#include "model/families/llama.h"

namespace tessera::model {
namespace {

class Phi3Block : public LlamaBlock {
 public:
  Phi3Block(const WeightScope& scope, const ModelConfig& config, int64_t layer)
      : LlamaBlock(scope, config, {.layer = layer, .qkv = Attention::fused_qkv(config, "qkv_proj")},
                   {.gate = {"gate_up_proj", config.inter, 0, 2 * config.inter},
                    .up = {"gate_up_proj", config.inter, config.inter, 2 * config.inter}}) {}
};

std::unique_ptr<Model> make_phi3(const ModelConfig& config, Weights& weights) {
  return std::make_unique<Decoder<Phi3Block>>(config, weights,
                                              Norm::Options{.eps = config.norm_eps});
}

}  // namespace

extern const Family kPhi3 = {.model_type = "phi3",
                             .class_name = "Phi3ForCausalLM",
                             .read = &read_window,
                             .make = &make_phi3};

}  // namespace tessera::model
