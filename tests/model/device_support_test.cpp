// What a device is asked before a model goes there: every question is a call the CPU takes.
// SPDX-License-Identifier: MIT
#include "model/device_support.h"

#include <gtest/gtest.h>

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
              find_missing_operation(
                  config, {.dtype = dtype, .weights = weights, .kv_type = kv_type, .page_size = 32},
                  cpu_device()),
              "")
              << name(dtype) << ' ' << name(kv_type);
        }
      }
    }
  }
}

TEST(DeviceSupport, ADeviceThatIsNotThereLacksTheFirst) {
  EXPECT_EQ(find_missing_operation(tiny_config(), {}, cuda_device(63)), "embedding of bf16");
}

}  // namespace
}  // namespace tessera::testing
