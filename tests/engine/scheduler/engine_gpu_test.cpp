// The engine on a GPU: the bundled model's reference tokens, scores close to the CPU's, and answers
// that no schedule changes.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <tuple>

#include "engine/make_engine.h"
#include "model/model.h"
#include "tests/core/message_of.h"
#include "tests/engine/scheduler/schedules.h"
#include "tests/gpu.h"

namespace tessera {
namespace {

using namespace tessera::testing;

// The test may run on another machine than it was built on, in the root of a copy of the tree.
std::filesystem::path bundled_model() {
  const std::filesystem::path place = "models/tessera-13m";
  std::error_code ignored;
  const std::filesystem::path built = std::filesystem::path(TESSERA_SOURCE_DIR) / place;
  return std::filesystem::exists(built / "config.json", ignored) ? built : place;
}

nlohmann::json read_oracle() {
  std::ifstream file(bundled_model() / "oracle.json");
  return nlohmann::json::parse(file);
}

EngineOptions options_of(Device device, DType dtype, KvFormat kv_type) {
  EngineOptions options;
  options.device = device;
  options.dtype = dtype;
  options.kv_type = kv_type;
  options.page_size = kv_type == KvFormat::int4 ? 32 : 16;
  options.max_context = 512;
  options.max_batch = 8;
  options.max_step_tokens = 64;
  options.max_step_logits = 64;
  return options;
}

class EngineOnGpu : public GpuTest {};

TEST_F(EngineOnGpu, GivesTheReferencesGreedyTokensInF32) {
  const nlohmann::json oracle = read_oracle();
  const std::unique_ptr<Engine> engine =
      Engine::load(bundled_model(), options_of(cuda_device(), DType::f32, KvFormat::plain));
  EXPECT_EQ(engine->device(), cuda_device());
  std::vector<RequestId> ids;
  for (size_t i = 0; i < oracle["prompts"].size(); ++i) {
    Request request;
    request.prompt = oracle["prompt_ids"][i].get<std::vector<int32_t>>();
    request.sampling.temperature = 0.0f;
    request.ignores_eos = true;
    request.max_new_tokens = static_cast<int64_t>(oracle["greedy"][i].size());
    ids.push_back(engine->submit(request).value());
  }
  Outcomes outcomes;
  while (engine->has_work()) collect(engine->step(), outcomes);
  for (size_t i = 0; i < ids.size(); ++i) {
    EXPECT_EQ((outcomes[{ids[i], 0}].tokens), oracle["greedy"][i].get<std::vector<int32_t>>())
        << "prompt " << i;
  }
}

// The model as its own draft. Its prompt ends with a token that the target decodes and the draft
// prefills, so that a few guesses may differ.
TEST_F(EngineOnGpu, GivesTheSameTokensWithADraftModelInFewerSteps) {
  const nlohmann::json oracle = read_oracle();
  std::vector<int32_t> tokens[2];
  int64_t num_steps[2] = {};
  for (const bool has_draft : {false, true}) {
    EngineOptions options = options_of(cuda_device(), DType::bf16, KvFormat::plain);
    options.max_batch = 16;
    if (has_draft) {
      options.speculation = Speculation::draft;
      options.draft_folder = bundled_model();
    }
    const std::unique_ptr<Engine> engine = Engine::load(bundled_model(), options);
    Request request;
    request.prompt = oracle["prompt_ids"][0].get<std::vector<int32_t>>();
    request.sampling.temperature = 0.0f;
    request.ignores_eos = true;
    request.max_new_tokens = 200;
    tokens[has_draft] = ids_of(run_to_end(*engine, request).front().tokens);
    const EngineMetrics metrics = engine->metrics();
    num_steps[has_draft] = metrics.num_steps;
    EXPECT_FALSE(metrics.has_given_up_drafts);
    EXPECT_GE(metrics.num_accepted_tokens * 10, metrics.num_drafted_tokens * 9);
  }
  EXPECT_EQ(tokens[1], tokens[0]);
  EXPECT_LT(num_steps[1] * 4, num_steps[0]);
}

// Prompt logprobs of a text that the model wrote itself, computed in chunks of 64.
std::vector<float> logprobs_with(const EngineOptions& options) {
  const nlohmann::json oracle = read_oracle();
  Request request;
  for (size_t i = 0; request.prompt.size() < 300; i = (i + 1) % oracle["greedy"].size()) {
    for (const int32_t token : oracle["greedy"][i].get<std::vector<int32_t>>()) {
      request.prompt.push_back(token);
    }
  }
  request.max_new_tokens = 0;
  request.wants_prompt_logprobs = true;
  const std::unique_ptr<Engine> engine = Engine::load(bundled_model(), options);
  return run_to_end(*engine, request).front().prompt_logprobs;
}
std::vector<float> logprobs_on(Device device, DType dtype, KvFormat kv_type) {
  return logprobs_with(options_of(device, dtype, kv_type));
}

double mean_of(const std::vector<float>& values) {
  double sum = 0.0;
  for (const float value : values) sum += double{value};
  return sum / static_cast<double>(values.size());
}

class TypesOnGpu : public GpuTest,
                   public ::testing::WithParamInterface<std::tuple<DType, KvFormat>> {
 protected:
  // Plain caches in f32 and bf16 must run; the others only if there are kernels for them.
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped() || HasFailure()) return;
    const auto [dtype, kv_type] = GetParam();
    const std::string missing = model::find_missing_operation(
        model::load_config(bundled_model()), {.dtype = dtype, .device = cuda_device()}, kv_type,
        kv_type == KvFormat::int4 ? 32 : 16);
    if (missing.empty()) return;
    if (kv_type == KvFormat::plain) FAIL() << "no kernel for " << missing;
    GTEST_SKIP() << "no kernel for " << missing;
  }
};

// The mean of 300 logprobs, which rounding moves at random: in f32 by some 1e-6 each, in bf16,
// whose activations carry 8 bits, by some hundredths. A wrong key or value moves it by tenths.
TEST_P(TypesOnGpu, ScoreATextAsTheCpuDoes) {
  const auto [dtype, kv_type] = GetParam();
  const std::vector<float> want = logprobs_on(cpu_device(), dtype, kv_type);
  const std::vector<float> got = logprobs_on(cuda_device(), dtype, kv_type);
  ASSERT_EQ(got.size(), want.size());
  const bool is_exact = dtype == DType::f32 && kv_type == KvFormat::plain;
  EXPECT_NEAR(mean_of(got), mean_of(want), is_exact ? 1e-4 : 2e-2);
  RecordProperty("difference", std::to_string(mean_of(got) - mean_of(want)));
}

// TESSERA_SCHEDULES=72 makes it a thousand over all types.
uint64_t num_schedules() {
  const char* wanted = std::getenv("TESSERA_SCHEDULES");
  return wanted == nullptr ? 8 : std::strtoull(wanted, nullptr, 10);
}

TEST_P(TypesOnGpu, AnswerARequestAlikeInAnySchedule) {
  const auto [dtype, kv_type] = GetParam();
  const ScheduleCounts counts =
      expect_alike_in_any_schedule({.kv_type = kv_type,
                                    .dtype = dtype,
                                    .device = cuda_device(),
                                    .page_sizes = {kv_type == KvFormat::int4 ? 32 : 16},
                                    .num_schedules = num_schedules()});
  EXPECT_GT(counts.num_preemptions, 0);
  EXPECT_GT(counts.num_replayed_tokens, 0);
  EXPECT_GT(counts.num_replays, 0);
  EXPECT_EQ(counts.num_drafted_tokens > 0, kv_type != KvFormat::int4);
  EXPECT_EQ(counts.num_draft_steps > 0, kv_type != KvFormat::int4);
}

INSTANTIATE_TEST_SUITE_P(All, TypesOnGpu,
                         ::testing::Combine(::testing::Values(DType::bf16, DType::f32),
                                            ::testing::ValuesIn(kAllKvFormats)),
                         [](const auto& test) {
                           return std::string(name(std::get<0>(test.param))) + "_" +
                                  std::string(name(std::get<1>(test.param)));
                         });

// Weights of codes, beside codes (auto) or values (plain).
using Quantised = std::tuple<WeightFormat, ActivationFormat>;
class QuantisedOnGpu : public GpuTest, public ::testing::WithParamInterface<Quantised> {
 protected:
  static EngineOptions options_on(Device device) {
    EngineOptions options = options_of(device, DType::bf16, KvFormat::plain);
    std::tie(options.weights, options.activations) = GetParam();
    // The CPU multiplies both ways: it is told what auto means on the GPU.
    const bool is_8bit = options.weights != WeightFormat::int4;
    if (device.is_cpu() && is_8bit && options.activations == ActivationFormat::automatic) {
      options.activations = ActivationFormat::codes;
    }
    return options;
  }
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped() || HasFailure()) return;
    const model::ModelConfig config = model::load_config(bundled_model());
    const engine::DeviceChoice choice = engine::choose_device(config, options_on(cuda_device()));
    const bool is_hopper = device_info(cuda_device()).compute_capability == 90;
    if (choice.device.is_cpu() && is_hopper) FAIL() << choice.why_no_gpu;
    if (choice.device.is_cpu()) GTEST_SKIP() << choice.why_no_gpu;
  }
};

TEST_P(QuantisedOnGpu, ScoreATextAsTheCpuDoes) {
  const std::vector<float> want = logprobs_with(options_on(cpu_device()));
  const std::vector<float> got = logprobs_with(options_on(cuda_device()));
  ASSERT_EQ(got.size(), want.size());
  EXPECT_NEAR(mean_of(got), mean_of(want), 2e-2);
  RecordProperty("difference", std::to_string(mean_of(got) - mean_of(want)));
}

// Steps of several requests, in graphs and without, give each the tokens it gets alone.
TEST_P(QuantisedOnGpu, AnswerARequestAlikeInABatch) {
  const nlohmann::json oracle = read_oracle();
  std::vector<Request> requests;
  for (const nlohmann::json& prompt : oracle["prompt_ids"]) {
    Request request;
    request.prompt = prompt.get<std::vector<int32_t>>();
    request.sampling.temperature = 0.0f;
    request.num_logprobs = 2;
    request.ignores_eos = true;
    request.max_new_tokens = 60;
    requests.push_back(request);
  }
  EngineOptions options = options_on(cuda_device());
  options.fuses_steps = true;
  const std::unique_ptr<Engine> together = Engine::load(bundled_model(), options);
  options.use_graphs = options.fuses_steps = false;
  const std::unique_ptr<Engine> alone = Engine::load(bundled_model(), options);
  const auto answers = [](Engine& engine, std::span<const Request> some) {
    std::vector<RequestId> ids;
    for (const Request& request : some) ids.push_back(engine.submit(request).value());
    Outcomes outcomes;
    while (engine.has_work()) collect(engine.step(), outcomes);
    std::vector<Outcome> all;
    for (const RequestId id : ids) all.push_back(outcomes[{id, 0}]);
    return all;
  };
  const std::vector<Outcome> got = answers(*together, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    const Outcome want = answers(*alone, {&requests[i], 1}).front();
    EXPECT_EQ(got[i].tokens, want.tokens) << "prompt " << i;
    EXPECT_EQ(got[i].logprobs, want.logprobs) << "prompt " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, QuantisedOnGpu,
    ::testing::Combine(::testing::Values(WeightFormat::int8, WeightFormat::fp8,
                                         WeightFormat::fp8_block, WeightFormat::int4),
                       ::testing::Values(ActivationFormat::automatic, ActivationFormat::plain)),
    [](const auto& test) {
      return std::string(name(std::get<0>(test.param))) + "_" +
             std::string(name(std::get<1>(test.param)));
    });

TEST_F(EngineOnGpu, IsWhatAutoChoosesAndTypesWithoutKernelsAreNot) {
  const model::ModelConfig config = model::load_config(bundled_model());
  EngineOptions options = options_of(cuda_device(), DType::bf16, KvFormat::plain);
  EXPECT_EQ(engine::choose_device(config, options).device, cuda_device());
  options.weights = WeightFormat::int8;
  EXPECT_EQ(engine::choose_device(config, options).device, cuda_device());
  options.dtype = DType::f32;  // 4-bit weights are multiplied by 16-bit values
  options.weights = WeightFormat::int4;
  EXPECT_EQ(engine::choose_device(config, options).device, cpu_device());
  EXPECT_NE(message_of([&] { engine::check_device(config, options); }).find("gemm: no row takes"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera
