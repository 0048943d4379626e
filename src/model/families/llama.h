// The block of Llama, which other families share.
// SPDX-License-Identifier: MIT
#pragma once

#include "model/family.h"
#include "model/layers.h"

namespace tessera::model {

//   h += attention(norm(h));  h += mlp(norm(h))
class LlamaBlock {
 public:
  LlamaBlock(const WeightScope& scope, const ModelConfig& config, int64_t layer);
  // For blocks that differ in their layers only.
  LlamaBlock(const WeightScope& scope, const ModelConfig& config,
             const Attention::Options& attention, const Mlp::Options& mlp);

  void forward(Stream& stream, Step& step) const;

 private:
  Norm attention_norm_;
  Attention attention_;
  Norm mlp_norm_;
  Mlp mlp_;
};

// A model of such blocks.
std::unique_ptr<Model> make_llama(const ModelConfig& config, Weights& weights);

}  // namespace tessera::model
