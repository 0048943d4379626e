// What a dry model says it will take, against what a real one takes.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include "dist/communicator.h"
#include "model/model.h"
#include "tests/model/tiny_model.h"

namespace tessera::testing {
namespace {

using model::BatchLimits;
using model::LoadOptions;
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

constexpr BatchLimits kLimits{
    .tokens = 40, .batch = 3, .max_pages = 9, .logits = 7, .max_positions = 100};

TEST(MemoryNeeds, AreWhatWeightsTake) {
  for (const ModelConfig& config : configs()) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const WeightFormat format : {WeightFormat::plain, WeightFormat::int8}) {
        const LoadOptions options{.dtype = dtype, .format = format};
        const auto made = make_random_model(config, options, 1);
        const model::ModelNeeds needs = measure_model(config, options, kLimits);
        EXPECT_EQ(needs.weights, made->weight_bytes());
        EXPECT_EQ(model::weight_bytes(config, dtype, format), made->weight_bytes());
        EXPECT_EQ(needs.host, 0);
        // Every parameter is held once; int8 makes those of linear layers smaller.
        if (format == WeightFormat::plain) {
          EXPECT_EQ(needs.weights, config.num_parameters() * bit_width(dtype) / 8);
        } else {
          EXPECT_LT(needs.weights, config.num_parameters() * bit_width(dtype) / 8);
        }
      }
    }
  }
}

TEST(MemoryNeeds, AreWhatTheForwardPassTakes) {
  dist::LocalCommunicator local;
  for (const ModelConfig& config : configs()) {
    for (const KvFormat kv_type : {KvFormat::plain, KvFormat::int8, KvFormat::int4}) {
      for (const int64_t max_positions : {int64_t{100}, config.max_positions}) {
        BatchLimits limits = kLimits;
        limits.max_positions = max_positions;
        limits.kv_type = kv_type;
        const auto made = make_random_model(config, {}, 1);
        made->prepare(limits, local);
        EXPECT_EQ(measure_model(config, {}, limits).activations, made->activation_bytes())
            << name(kv_type);
        EXPECT_GT(made->activation_bytes(), limits.tokens * config.hidden * 2);
      }
    }
  }
}

TEST(TensorPool, TakesTensorsOutOfWhatIsReserved) {
  model::TensorPool dry(cpu_device(), model::DryRegion::weights), pool;
  for (const int64_t size : {100, 3, 64}) dry.make(DType::f32, {size});
  EXPECT_EQ(dry.aligned_bytes(), 512 + 256 + 256);
  pool.reserve(dry.aligned_bytes());
  std::byte* next = nullptr;
  for (const int64_t size : {100, 3, 64}) {
    const TensorView view = pool.make(DType::f32, {size});
    if (next != nullptr) {
      EXPECT_EQ(view.as<std::byte>(), next);
    }
    next = view.as<std::byte>() + (size * 4 + 255) / 256 * 256;
  }
  // Beyond the end a tensor has memory of its own, and the sanitizers would notice if it had not.
  const TensorView own = pool.make(DType::f32, {1});
  EXPECT_NE(own.as<std::byte>(), next);
  *own.as<float>() = 1.0f;
  EXPECT_EQ(pool.size_bytes(), 4 * (100 + 3 + 64 + 1));
}

}  // namespace
}  // namespace tessera::testing
