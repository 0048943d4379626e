// Drafts by a second model: the same output for every draft, in fewer steps for a good one.
// SPDX-License-Identifier: MIT
#include "engine/draft_model.h"

#include <gtest/gtest.h>

#include <limits>
#include <new>
#include <string>
#include <utility>

#include "tessera/core/device_fault.h"
#include "tests/engine/scheduler/tiny_model.h"

namespace tessera {
namespace {

using namespace tessera::testing;

EngineOptions wide_options() {
  EngineOptions options = tiny_options();
  options.max_batch = 32;
  options.max_step_tokens = 64;
  return options;
}

Request draft_request(int32_t first, int64_t max_new_tokens = 60, float temperature = 0.0f) {
  Request request;
  for (int32_t i = 0; i < 5; ++i) request.prompt.push_back((first + 7 * i) % kTinyVocab);
  request.max_new_tokens = max_new_tokens;
  request.sampling.temperature = temperature;
  request.sampling.seed = static_cast<uint64_t>(first);
  return request;
}

// Greedy and sampled, alone and with siblings.
std::vector<Request> mixed_requests() {
  std::vector<Request> requests;
  for (int32_t i = 0; i < 4; ++i)
    requests.push_back(draft_request(i, 40, i % 2 == 0 ? 0.0f : 0.9f));
  requests[1].num_outputs = 2;
  requests[3].sampling.top_p = 0.9f;
  requests[3].num_logprobs = 0;
  return requests;
}

struct Answers {
  Outcomes outcomes;
  EngineMetrics metrics;
};

Answers answer(engine::EngineImpl& engine, const std::vector<Request>& requests) {
  Answers answers;
  for (const Request& request : requests) engine.submit(request);
  run_all(engine, answers.outcomes);
  engine.step();  // takes in what was under way
  answers.metrics = engine.metrics();
  EXPECT_EQ(answers.metrics.num_held_pages, 0);
  EXPECT_EQ(answers.metrics.num_held_draft_pages, 0);
  return answers;
}

void expect_same(const Outcomes& got, const Outcomes& want) {
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [id, outcome] : want) {
    const Outcome& other = got.at(id);
    EXPECT_EQ(other.tokens, outcome.tokens);
    EXPECT_EQ(other.logprobs, outcome.logprobs);
    EXPECT_EQ(other.finish, outcome.finish) << other.error;
  }
}

class DraftsOf : public ::testing::TestWithParam<DraftKind> {};

TEST_P(DraftsOf, LeaveEveryOutputAsItWas) {
  const Answers plain = answer(*tiny_engine(wide_options()), mixed_requests());
  for (const bool runs_ahead : {false, true}) {
    EngineOptions options = wide_options();
    options.runs_ahead = runs_ahead;
    const auto engine = drafting_engine(GetParam(), options);
    const Answers drafted = answer(*engine, mixed_requests());
    expect_same(drafted.outcomes, plain.outcomes);
    EXPECT_GT(drafted.metrics.num_drafted_tokens, 0);
    EXPECT_GT(drafted.metrics.num_draft_steps, 0);
    EXPECT_GT(drafted.metrics.draft_weight_bytes, 0);
  }
}

std::string kind_name(const ::testing::TestParamInfo<DraftKind>& test) {
  constexpr const char* kNames[] = {"same", "similar", "other"};
  return kNames[static_cast<size_t>(test.param)];
}
INSTANTIATE_TEST_SUITE_P(AllKinds, DraftsOf, ::testing::ValuesIn(kAllDraftKinds), kind_name);

// Sampled requests as well: the draft draws with the random numbers of the target.
TEST(DraftModel, ThatIsTheTargetIsAlwaysRight) {
  const Answers plain = answer(*tiny_engine(wide_options()), mixed_requests());
  const Answers drafted =
      answer(*drafting_engine(DraftKind::same, wide_options()), mixed_requests());
  expect_same(drafted.outcomes, plain.outcomes);
  EXPECT_GT(drafted.metrics.num_drafted_tokens, 100);
  EXPECT_EQ(drafted.metrics.num_accepted_tokens, drafted.metrics.num_drafted_tokens);
  EXPECT_LT(drafted.metrics.num_steps * 3, plain.metrics.num_steps);
}

TEST(DraftModel, ThatKnowsNothingIsHardlyAsked) {
  const std::vector<Request> requests = {draft_request(3, 100)};
  const Answers plain = answer(*tiny_engine(wide_options()), requests);
  const Answers drafted = answer(*drafting_engine(DraftKind::other, wide_options()), requests);
  expect_same(drafted.outcomes, plain.outcomes);
  EXPECT_LE(drafted.metrics.num_drafted_tokens - drafted.metrics.num_accepted_tokens,
            4 + 2 * drafted.metrics.num_accepted_tokens + 2);
  EXPECT_LE(drafted.metrics.num_draft_steps, 20);
}

TEST(DraftModel, CatchesUpWithALongPromptInChunks) {
  Request request = draft_request(1, 20);
  for (int32_t i = 0; i < 90; ++i) request.prompt.push_back((i * i) % kTinyVocab);
  EngineOptions options = tiny_options();
  options.max_batch = 16;
  options.max_step_tokens = 16;
  const Answers plain = answer(*tiny_engine(options), {request});
  const Answers drafted = answer(*drafting_engine(DraftKind::same, options), {request});
  expect_same(drafted.outcomes, plain.outcomes);
  // Six chunks and no draft yet; after them all is right.
  EXPECT_EQ(drafted.metrics.num_accepted_tokens, drafted.metrics.num_drafted_tokens);
  EXPECT_GT(drafted.metrics.num_drafted_tokens, 5);
}

TEST(DraftModel, WithAShorterContextEndsItsDraftsThere) {
  model::ModelConfig config = tiny_config();
  config.max_positions = 24;
  EngineOptions options = wide_options();
  const Answers plain = answer(*tiny_engine(options), {draft_request(2, 60)});
  options.speculation = Speculation::draft;
  const auto engine = engine_over(tiny_model(tiny_config()), options, {}, tiny_model(config));
  const Answers drafted = answer(*engine, {draft_request(2, 60)});
  expect_same(drafted.outcomes, plain.outcomes);
  EXPECT_EQ(drafted.metrics.num_accepted_tokens, drafted.metrics.num_drafted_tokens);
  EXPECT_GT(drafted.metrics.num_drafted_tokens, 8);
  EXPECT_LE(drafted.metrics.num_drafted_tokens, 24 - 5);
}

TEST(DraftModel, KeepsToTheLimitsOfAStep) {
  const Answers plain = answer(*tiny_engine(tiny_options()), {draft_request(4, 40)});
  for (const int64_t limit : {1, 2, 3, 5}) {
    SCOPED_TRACE(limit);
    EngineOptions of_batch = wide_options(), of_tokens = wide_options(), of_logits = wide_options();
    of_batch.max_batch = limit;
    of_tokens.max_step_tokens = limit;
    of_logits.max_step_logits = limit;
    for (const EngineOptions& options : {of_batch, of_tokens, of_logits}) {
      const Answers drafted =
          answer(*drafting_engine(DraftKind::same, options), {draft_request(4, 40)});
      expect_same(drafted.outcomes, plain.outcomes);
      EXPECT_EQ(drafted.metrics.num_drafted_tokens > 0, limit > 1);
    }
  }
}

// Pages for two contexts of 20, in the target and in the draft, and five requests.
TEST(DraftModel, GoesOnWhereBothAreShortOfPages) {
  EngineOptions options = tiny_options(/*num_pages=*/32);
  options.max_context = 100;
  options.max_batch = 16;
  std::vector<Request> requests;
  for (int32_t i = 0; i < 5; ++i) requests.push_back(draft_request(i, 60));
  const Answers plain = answer(*tiny_engine(options), requests);
  for (const DraftKind kind : kAllDraftKinds) {
    const Answers drafted = answer(*drafting_engine(kind, options), requests);
    expect_same(drafted.outcomes, plain.outcomes);
    EXPECT_GT(drafted.metrics.num_preemptions, 0) << "memory must be short";
  }
}

TEST(DraftModel, ForgetsACancelledRequest) {
  const auto engine = drafting_engine(DraftKind::same, wide_options());
  const RequestId id = engine->submit(draft_request(0, 100)).value();
  Outcomes outcomes;
  for (int i = 0; i < 4; ++i) collect(engine->step(), outcomes);
  EXPECT_GT(engine->metrics().num_held_draft_pages, 0);
  engine->cancel(id);
  run_all(*engine, outcomes);
  EXPECT_EQ((outcomes[{id, 0}].finish), FinishReason::cancelled);
  EXPECT_EQ(engine->metrics().num_held_draft_pages, 0);
}

TEST(DraftModel, IsNotForPenaltiesAndBeams) {
  Request request = draft_request(0, 30);
  request.sampling.presence_penalty = 0.01f;
  const auto engine = drafting_engine(DraftKind::same, wide_options());
  EXPECT_EQ(answer(*engine, {request}).metrics.num_drafted_tokens, 0);
  request = draft_request(0, 30);
  request.beam_width = 2;
  EXPECT_EQ(answer(*engine, {request}).metrics.num_drafted_tokens, 0);
}

TEST(DraftModel, WithoutFiniteLogitsProposesNothing) {
  EngineOptions options = wide_options();
  const Answers plain = answer(*tiny_engine(options), {draft_request(5)});
  options.speculation = Speculation::draft;
  std::unique_ptr<model::Model> broken = tiny_draft(DraftKind::same, options);
  const TensorView head = broken->weights().find("lm_head.weight").values;
  head.as<float>()[0] = std::numeric_limits<float>::quiet_NaN();
  const auto engine = engine_over(tiny_model(tiny_config()), options, {}, std::move(broken));
  const Answers drafted = answer(*engine, {draft_request(5)});
  expect_same(drafted.outcomes, plain.outcomes);
  EXPECT_EQ(drafted.metrics.num_drafted_tokens, 0);
}

TEST(DraftModel, ThatFailsIsGivenUpAndNothingElseIsLost) {
  const Answers plain = answer(*tiny_engine(wide_options()), mixed_requests());
  const auto engine = drafting_engine(DraftKind::similar, wide_options());
  int num_drafts = 0;
  engine->on_stage([&](engine::StepStage stage) {
    if (stage == engine::StepStage::draft && ++num_drafts == 5) throw std::bad_alloc();
  });
  const Answers drafted = answer(*engine, mixed_requests());
  expect_same(drafted.outcomes, plain.outcomes);
  EXPECT_EQ(num_drafts, 5) << "there is no draft model any more";
  EXPECT_TRUE(drafted.metrics.has_given_up_drafts);
  EXPECT_FALSE(drafted.metrics.is_dead);
}

TEST(DraftModel, OnABrokenDeviceEndsTheEngine) {
  const auto engine = drafting_engine(DraftKind::same, wide_options());
  engine->submit(draft_request(0));
  engine->step();
  engine->on_stage([](engine::StepStage stage) {
    if (stage == engine::StepStage::draft) throw DeviceFault("cuda:0 is gone");
  });
  Outcomes outcomes;
  run_all(*engine, outcomes);
  EXPECT_EQ(outcomes.begin()->second.error, "cuda:0 is gone");
  EXPECT_TRUE(engine->metrics().is_dead);
}

}  // namespace
}  // namespace tessera
