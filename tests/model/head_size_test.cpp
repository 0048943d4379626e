// Whether a GPU, which need not be present, has a kernel for every call of a model with heads of
// any size. No kernel runs: this is a dry run over the tables of rows.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include "model/model.h"
#include "ops/registry.h"
#include "tessera/core/device.h"

// Replaces tessera::device_info through the linker's --wrap: GPUs 0 and 1 of this test.
extern "C" const tessera::DeviceInfo& __wrap__ZN7tessera11device_infoENS_6DeviceE(
    tessera::Device device) {
  static const tessera::DeviceInfo ampere{.name = "an A100",
                                          .compute_capability = 80,
                                          .num_sms = 108,
                                          .memory_bytes = int64_t{80} << 30,
                                          .l2_bytes = 40 << 20,
                                          .shared_bytes_per_block = 163 << 10,
                                          .sm_clock_khz = 1410000};
  static const tessera::DeviceInfo hopper{.name = "an H200",
                                          .compute_capability = 90,
                                          .num_sms = 132,
                                          .memory_bytes = int64_t{141} << 30,
                                          .l2_bytes = 50 << 20,
                                          .shared_bytes_per_block = 227 << 10,
                                          .sm_clock_khz = 1980000};
  return device.index == 0 ? ampere : hopper;
}

namespace tessera::testing {
namespace {

using model::find_missing_operation;
using model::ModelConfig;

class HeadSizes : public ::testing::TestWithParam<Device> {
 protected:
  void SetUp() override {
    if (ops::all_rows().empty()) GTEST_SKIP() << "this build has no CUDA rows";
  }

  std::string missing(int64_t head_dim, DType dtype, KvFormat kv_type, int64_t page_size,
                      int64_t window = 0) const {
    ModelConfig config;
    config.num_layers = 2;
    config.hidden = 64;
    config.inter = 96;
    config.num_heads = 4;
    config.num_kv_heads = 2;
    config.head_dim = head_dim;
    config.vocab = 128;
    config.max_positions = 256;
    config.window = window;
    return find_missing_operation(config, {.dtype = dtype, .device = GetParam()}, kv_type,
                                  page_size);
  }
};

TEST_P(HeadSizes, UpTo256AreAllTakenInEveryTypeAndCache) {
  for (int64_t head_dim = 2; head_dim <= 256; head_dim += 2) {
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      for (const KvFormat kv_type : kAllKvFormats) {
        for (const int64_t page_size : {32, 64}) {
          ASSERT_EQ(missing(head_dim, dtype, kv_type, page_size), "");
        }
        ASSERT_EQ(missing(head_dim, dtype, kv_type, 32, 100), "");
      }
      ASSERT_EQ(missing(head_dim, dtype, KvFormat::plain, 16), "");
      ASSERT_EQ(missing(head_dim, dtype, KvFormat::plain, 1), "");
    }
  }
}

TEST_P(HeadSizes, BeyondAreRefusedByName) {
  const std::string message = missing(264, DType::bf16, KvFormat::plain, 16);
  EXPECT_EQ(message.find("attention_decode: no row takes bf16"), 0u) << message;
}

INSTANTIATE_TEST_SUITE_P(On, HeadSizes, ::testing::Values(cuda_device(0), cuda_device(1)),
                         [](const auto& test) {
                           return "sm" + std::to_string(device_info(test.param).compute_capability);
                         });

}  // namespace
}  // namespace tessera::testing
