// What a config says a model will take, against what it takes.
// SPDX-License-Identifier: MIT
#include "model/memory_needs.h"

#include <gtest/gtest.h>

#include "dist/communicator.h"
#include "model/llama.h"
#include "tests/model/tiny_model.h"

namespace tessera::testing {
namespace {

using model::BatchLimits;
using model::ModelConfig;
using model::WeightFormat;

std::vector<ModelConfig> configs() {
  ModelConfig plain = tiny_config();
  ModelConfig tied = plain;
  tied.has_tied_embeddings = true;
  tied.num_layers = 3;
  ModelConfig biased = plain;
  biased.has_qkv_bias = biased.has_output_bias = biased.has_mlp_bias = true;
  biased.num_kv_heads = 4;
  return {plain, tied, biased};
}

TEST(MemoryNeeds, AreWhatWeightsTake) {
  for (const ModelConfig& config : configs()) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const WeightFormat format : {WeightFormat::plain, WeightFormat::int8}) {
        const model::LlamaWeights weights =
            make_random_weights(config, {.dtype = dtype, .format = format}, 1);
        EXPECT_EQ(model::weight_bytes(config, dtype, format), weights.size_bytes());
        const model::LayerWeights& layer = weights.layers.front();
        int64_t largest =
            std::max(weights.embedding.size_bytes(), weights.head.weight.size_bytes());
        for (const model::Linear* linear :
             {&layer.qkv, &layer.output, &layer.gate_up, &layer.down}) {
          largest = std::max(largest, linear->weight.size_bytes());
        }
        EXPECT_EQ(model::largest_weight_bytes(config, dtype, format), largest);
      }
    }
  }
}

TEST(MemoryNeeds, AreWhatTheForwardPassTakes) {
  dist::LocalCommunicator local;
  for (const ModelConfig& config : configs()) {
    for (const KvFormat kv_type : {KvFormat::plain, KvFormat::int8, KvFormat::int4}) {
      for (const int64_t max_positions : {int64_t{100}, config.max_positions}) {
        const BatchLimits limits{.tokens = 40,
                                 .batch = 3,
                                 .max_pages = 9,
                                 .logits = 7,
                                 .max_positions = max_positions,
                                 .kv_type = kv_type};
        const model::Llama llama(config, make_random_weights(config, {.dtype = DType::bf16}, 1),
                                 DType::bf16, cpu_device(), limits, local);
        EXPECT_EQ(model::activation_bytes(config, DType::bf16, limits), llama.activation_bytes())
            << name(kv_type);
      }
    }
  }
}

}  // namespace
}  // namespace tessera::testing
