// Whether a device can run a model: a dry run of the forward pass, all of which the CPU takes.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include "model/model.h"
#include "tests/model/tiny_model.h"

namespace tessera::testing {
namespace {

using model::find_missing_operation;
using model::ModelConfig;
using model::WeightFormat;

TEST(DeviceSupport, TheCpuTakesEveryCallThatIsAskedAbout) {
  ModelConfig biased = tiny_config();
  biased.has_qkv_bias = biased.has_output_bias = biased.has_mlp_bias = true;
  biased.window = 8;
  for (const ModelConfig& config : {tiny_config(), biased}) {
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      for (const WeightFormat weights : {WeightFormat::plain, WeightFormat::int8}) {
        for (const KvFormat kv_type : kAllKvFormats) {
          EXPECT_EQ(
              find_missing_operation(config, {.dtype = dtype, .format = weights}, kv_type, 32), "")
              << name(dtype) << ' ' << name(kv_type);
        }
      }
    }
  }
}

TEST(DeviceSupport, ADeviceThatIsNotThereIsNamed) {
  const std::string missing =
      find_missing_operation(tiny_config(), {.device = cuda_device(63)}, KvFormat::plain, 16);
  EXPECT_NE(missing.find("cuda:63"), std::string::npos) << missing;
}

}  // namespace
}  // namespace tessera::testing
