// Gemma 2: norms before and after each block, with weights stored less 1; scores and logits capped
// softly; every other layer windowed; embeddings scaled by sqrt(hidden).
// SPDX-License-Identifier: MIT
#include <cmath>

#include "model/family.h"
#include "model/layers.h"
#include "tessera/core/convert.h"

namespace tessera::model {
namespace {

Norm::Options norm_options(const ModelConfig& config) {
  return {.eps = config.norm_eps, .offset = 1.0f};
}

//   h += norm(attention(norm(h)));  h += norm(mlp(norm(h)))
class Gemma2Block {
 public:
  Gemma2Block(const WeightScope& scope, const ModelConfig& config, int64_t layer)
      : before_attention_(scope, "input_layernorm", config.hidden, norm_options(config)),
        attention_(scope.at("self_attn"), config,
                   {.layer = layer, .qkv = Attention::separate_qkv(config)}),
        after_attention_(scope, "post_attention_layernorm", config.hidden, norm_options(config)),
        before_mlp_(scope, "pre_feedforward_layernorm", config.hidden, norm_options(config)),
        mlp_(scope.at("mlp"), config, Mlp::separate(config)),
        after_mlp_(scope, "post_feedforward_layernorm", config.hidden, norm_options(config)) {}

  void forward(Stream& stream, Step& step) const {
    const Arena::Scope scope(step.arena);
    attention_.forward(before_attention_.read(stream, attention_.inputs(), step), stream.block,
                       step);
    after_attention_.forward(stream.block, stream.block, step.ctx);
    stream.is_pending = true;
    mlp_.forward(before_mlp_.read(stream, mlp_.inputs(), step), stream.block, step);
    after_mlp_.forward(stream.block, stream.block, step.ctx);
    stream.is_pending = true;
  }

 private:
  Norm before_attention_;
  Attention attention_;
  Norm after_attention_;
  Norm before_mlp_;
  Mlp mlp_;
  Norm after_mlp_;
};

void read_gemma2(const Fields& fields, ModelConfig& config) {
  constexpr double kMaxCap = 1e6;
  config.has_qkv_bias = config.has_output_bias = fields.flag("attention_bias", false);
  config.activation = read_activation(fields, "hidden_activation", "gelu_pytorch_tanh");
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    config.windowed_layers.push_back(layer % 2 == 0);
  }
  read_window(fields, config);
  const double scalar =
      fields.number_or_none("query_pre_attn_scalar", 1e-6, kMaxCap).value_or(256.0);
  config.attention_scale = static_cast<float>(1.0 / std::sqrt(scalar));
  const auto cap_of = [&](std::string_view key) {
    return static_cast<float>(fields.number_or_none(key, 0.0, kMaxCap).value_or(0.0));
  };
  config.attention_softcap = cap_of("attn_logit_softcapping");
  config.logit_softcap = cap_of("final_logit_softcapping");
  config.embedding_scale = std::sqrt(static_cast<float>(config.hidden));
}

// The reference rounds the scale of the embeddings to the type it computes in.
std::unique_ptr<Model> make_gemma2(const ModelConfig& config, Weights& weights) {
  ModelConfig rounded = config;
  const DType dtype = weights.options().dtype;
  if (dtype == DType::bf16)
    rounded.embedding_scale = to_float(from_float<Bf16>(config.embedding_scale));
  if (dtype == DType::f16)
    rounded.embedding_scale = to_float(from_float<F16>(config.embedding_scale));
  return std::make_unique<Decoder<Gemma2Block>>(rounded, weights, norm_options(config));
}

}  // namespace

extern const Family kGemma2 = {.model_type = "gemma2",
                               .class_name = "Gemma2ForCausalLM",
                               .read = &read_gemma2,
                               .make = &make_gemma2,
                               .ties_embeddings = true,
                               .head_dim = 256};

}  // namespace tessera::model
