// Models of any head size on a GPU, held to the CPU: prompts by prefill, new tokens by decode, in
// every format of the cache.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <tuple>

#include "model/device_support.h"
#include "tests/engine/scheduler/tiny_model.h"
#include "tests/gpu.h"

namespace tessera {
namespace {

using namespace tessera::testing;

// One prompt of several chunks, then greedy tokens.
Outcome run_on(Device device, int64_t head_dim, DType dtype, KvType kv_type) {
  EngineOptions options = tiny_options();
  options.device = device;
  options.dtype = dtype;
  options.kv_type = kv_type;
  options.page_size = 32;
  options.kv_bytes = int64_t{1} << 22;
  model::ModelConfig config = tiny_config();
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = head_dim;
  engine::EngineImpl engine(config, tiny_weights(config, dtype, device), std::nullopt, options);
  Request request;
  for (int32_t i = 0; i < 70; ++i) request.prompt.push_back((7 * i + i * i) % kTinyVocab);
  request.sampling.temperature = 0.0f;
  request.ignores_eos = true;
  request.max_new_tokens = 20;
  request.wants_prompt_logprobs = true;
  return run_one(engine, request);
}

double mean_of(const std::vector<float>& values) {
  double sum = 0.0;
  for (const float value : values) sum += double{value};
  return sum / static_cast<double>(values.size());
}

class HeadSizesOnGpu : public GpuTest,
                       public ::testing::WithParamInterface<std::tuple<int64_t, DType>> {};

TEST_P(HeadSizesOnGpu, ScoreATextAsTheCpuDoesInEveryCache) {
  const auto [head_dim, dtype] = GetParam();
  for (const KvType kv_type : kAllKvTypes) {
    SCOPED_TRACE(std::string(name(kv_type)));
    const Outcome want = run_on(cpu_device(), head_dim, dtype, kv_type);
    const Outcome got = run_on(cuda_device(), head_dim, dtype, kv_type);
    ASSERT_EQ(got.prompt_logprobs.size(), want.prompt_logprobs.size());
    ASSERT_EQ(got.tokens.size(), want.tokens.size());
    const bool is_exact = dtype == DType::f32 && kv_type == KvType::plain;
    EXPECT_NEAR(mean_of(got.prompt_logprobs), mean_of(want.prompt_logprobs),
                is_exact ? 1e-4 : 2e-2);
    // Where rounding decides between two tokens, what follows differs; in f32 it does not.
    if (!is_exact) continue;
    EXPECT_EQ(got.tokens, want.tokens);
    EXPECT_NEAR(mean_of(got.logprobs), mean_of(want.logprobs), 1e-4);
  }
}

INSTANTIATE_TEST_SUITE_P(Some, HeadSizesOnGpu,
                         ::testing::Combine(::testing::Values(8, 20, 40, 72, 80, 112, 160, 192,
                                                              248),
                                            ::testing::Values(DType::bf16, DType::f16, DType::f32)),
                         [](const auto& test) {
                           return std::string(name(std::get<1>(test.param))) + "_d" +
                                  std::to_string(std::get<0>(test.param));
                         });

}  // namespace
}  // namespace tessera
