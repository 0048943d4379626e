// OLMo 2: norms after each block only, and norms of queries and keys over all heads together.
// SPDX-License-Identifier: MIT
#include "model/family.h"
#include "model/layers.h"

namespace tessera::model {
namespace {

//   h += norm(attention(h));  h += norm(mlp(h))
class Olmo2Block {
 public:
  Olmo2Block(const WeightScope& scope, const ModelConfig& config, int64_t layer)
      : attention_(scope.at("self_attn"), config,
                   {.layer = layer, .qkv = Attention::separate_qkv(config), .norm = QkNorm::whole}),
        after_attention_(scope, "post_attention_layernorm", config.hidden,
                         {.eps = config.norm_eps}),
        mlp_(scope.at("mlp"), config, Mlp::separate(config)),
        after_mlp_(scope, "post_feedforward_layernorm", config.hidden, {.eps = config.norm_eps}) {}

  void forward(Stream& stream, Step& step) const {
    attention_.forward(stream.hidden, stream.block, step);
    after_attention_.forward(stream.block, stream.block, step.ctx);
    stream.add(1.0f, step);
    mlp_.forward(stream.hidden, stream.block, step);
    after_mlp_.forward(stream.block, stream.block, step.ctx);
    stream.add(1.0f, step);
  }

 private:
  Attention attention_;
  Norm after_attention_;
  Mlp mlp_;
  Norm after_mlp_;
};

std::unique_ptr<Model> make_olmo2(const ModelConfig& config, Weights& weights) {
  return std::make_unique<Decoder<Olmo2Block>>(config, weights,
                                               Norm::Options{.eps = config.norm_eps});
}

}  // namespace

extern const Family kOlmo2 = {.model_type = "olmo2",
                              .class_name = "Olmo2ForCausalLM",
                              .read = &read_biases,
                              .make = &make_olmo2};

}  // namespace tessera::model
