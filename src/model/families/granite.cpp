// Granite: a Llama with multipliers for embeddings, scores, what blocks add, and logits.
// SPDX-License-Identifier: MIT
#include "model/family.h"
#include "model/layers.h"

namespace tessera::model {
namespace {

//   h += m * attention(norm(h));  h += m * mlp(norm(h))
class GraniteBlock {
 public:
  GraniteBlock(const WeightScope& scope, const ModelConfig& config, int64_t layer)
      : residual_scale_(config.residual_scale),
        attention_norm_(scope, "input_layernorm", config.hidden, {.eps = config.norm_eps}),
        attention_(scope.at("self_attn"), config,
                   {.layer = layer, .qkv = Attention::separate_qkv(config)}),
        mlp_norm_(scope, "post_attention_layernorm", config.hidden, {.eps = config.norm_eps}),
        mlp_(scope.at("mlp"), config, Mlp::separate(config)) {}

  void forward(Stream& stream, Step& step) const {
    const Arena::Scope scope(step.arena);
    attention_.forward(attention_norm_.read(stream, attention_.inputs(), step), stream.block, step);
    stream.add(residual_scale_, step);
    mlp_.forward(mlp_norm_.read(stream, mlp_.inputs(), step), stream.block, step);
    stream.add(residual_scale_, step);
  }

 private:
  float residual_scale_;
  Norm attention_norm_;
  Attention attention_;
  Norm mlp_norm_;
  Mlp mlp_;
};

void read_granite(const Fields& fields, ModelConfig& config) {
  constexpr double kMost = 1e6;
  const auto multiplier = [&](std::string_view key) {
    return static_cast<float>(fields.number_or_none(key, 1e-6, kMost).value_or(1.0));
  };
  read_biases(fields, config);
  config.embedding_scale = multiplier("embedding_multiplier");
  config.attention_scale = multiplier("attention_multiplier");
  config.residual_scale = multiplier("residual_multiplier");
  config.logit_scale = 1.0f / multiplier("logits_scaling");
}

std::unique_ptr<Model> make_granite(const ModelConfig& config, Weights& weights) {
  return std::make_unique<Decoder<GraniteBlock>>(config, weights,
                                                 Norm::Options{.eps = config.norm_eps});
}

}  // namespace

extern const Family kGranite = {.model_type = "granite",
                                .class_name = "GraniteForCausalLM",
                                .read = &read_granite,
                                .make = &make_granite};

}  // namespace tessera::model
