// The engine on a GPU: the bundled model's reference tokens, scores close to the CPU's, and answers
// that no schedule changes.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
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
std::vector<float> logprobs_on(Device device, DType dtype, KvFormat kv_type) {
  const nlohmann::json oracle = read_oracle();
  Request request;
  for (size_t i = 0; request.prompt.size() < 300; i = (i + 1) % oracle["greedy"].size()) {
    for (const int32_t token : oracle["greedy"][i].get<std::vector<int32_t>>()) {
      request.prompt.push_back(token);
    }
  }
  request.max_new_tokens = 0;
  request.wants_prompt_logprobs = true;
  const std::unique_ptr<Engine> engine =
      Engine::load(bundled_model(), options_of(device, dtype, kv_type));
  return run_to_end(*engine, request).front().prompt_logprobs;
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

TEST_F(EngineOnGpu, IsWhatAutoChoosesAndTypesWithoutKernelsAreNot) {
  const model::ModelConfig config = model::load_config(bundled_model());
  EngineOptions options = options_of(cuda_device(), DType::bf16, KvFormat::plain);
  EXPECT_EQ(engine::choose_device(config, options).device, cuda_device());
  options.weights = WeightFormat::int8;  // products with int8 weights are the CPU's so far
  EXPECT_EQ(engine::choose_device(config, options).device, cpu_device());
  EXPECT_NE(message_of([&] { engine::check_device(config, options); }).find("gemm: no row takes"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera
