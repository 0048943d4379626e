// How much memory packed weights take on a GPU. A dry run counts it, so no GPU need be present.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <memory>

#include "model/formats/stored_format.h"
#include "model/model.h"
#include "ops/registry.h"

namespace tessera::testing {
namespace {

constexpr Device kHopper = cuda_device(1);  // head_size_test.cpp

// Llama 3 8B with symmetric 4-bit layers in groups of 128, embeddings and head in 16 bits.
model::ModelConfig llama_w4a16(DType scales) {
  model::ModelConfig config = *model::find_preset("llama3-8b");
  auto formats = std::make_shared<model::StoredFormats>();
  formats->by_name["lm_head"] = {};
  formats->rules.push_back(
      {.targets = {},
       .format = {.storage = model::Storage::packed, .bits = 4, .group = 128, .scale = scales}});
  config.formats = std::move(formats);
  return config;
}

TEST(PackedBytes, Are4AndAnEighthBitsAWeightWith16BitScales) {
  if (ops::all_rows().empty()) GTEST_SKIP() << "this build has no CUDA rows";
  constexpr int64_t kLinear = 32 * (int64_t{6144 + 4096 + 28672} * 4096 + int64_t{4096} * 14336);
  constexpr int64_t kPlain = 2 * (2 * int64_t{128256} * 4096 + 65 * 4096);
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const auto bytes = [&](const model::ModelConfig& config, Device device,
                           model::WeightFormat format = model::WeightFormat::stored) {
      return weight_bytes(config, dtype, format, device);
    };
    for (const DType scales : {DType::bf16, DType::f16}) {
      const int64_t taken = bytes(llama_w4a16(scales), kHopper);
      EXPECT_EQ(taken, kLinear / 2 + kLinear / 128 * 2 + kPlain);
      EXPECT_LE(taken, 5'701'000'000);
      EXPECT_EQ(bytes(llama_w4a16(scales), cpu_device()), taken + kLinear / 128 * 2);
    }
    EXPECT_EQ(bytes(llama_w4a16(DType::f32), kHopper), kLinear / 2 + kLinear / 128 * 4 + kPlain);
    // Quantised while loading: weights have zero points, and the head is quantised too.
    const model::ModelConfig values = *model::find_preset("llama3-8b");
    constexpr int64_t kHead = int64_t{128256} * 4096, kAll = kLinear + kHead;
    EXPECT_EQ(bytes(values, kHopper, model::WeightFormat::int4),
              kAll / 2 + kAll / 128 * 3 + kPlain - 2 * kHead);
  }
}

TEST(PackedBytes, AreShownWithTheTypeOfTheirScales) {
  if (ops::all_rows().empty()) GTEST_SKIP() << "this build has no CUDA rows";
  const auto dry =
      model::make_dry_model(llama_w4a16(DType::f16), {.dtype = DType::bf16, .device = kHopper});
  EXPECT_EQ(dry->weights().kept().front().as,
            "i4, groups of 128, packed as fragments with scales of f16");
}

}  // namespace
}  // namespace tessera::testing
