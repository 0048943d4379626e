// Speculation in the engine: fewer steps for the same tokens, within the limits of a step.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <string>

#include "tests/engine/scheduler/tiny_model.h"

namespace tessera {
namespace {

using namespace tessera::testing;

// Answers in a cycle of eight letters.
std::unique_ptr<engine::EngineImpl> cycling_engine(EngineOptions options) {
  std::vector<std::string> pieces = {"a", "b", "c", "d", "e", "f", "g", "h"};
  return script_engine(std::move(pieces), std::move(options));
}

EngineOptions with_lookup(EngineOptions options = tiny_options()) {
  options.max_batch = 16;
  options.speculation = Speculation::lookup;
  return options;
}

Request cycling_request(int64_t max_new_tokens = 100) {
  Request request;
  request.prompt = {0};
  request.max_new_tokens = max_new_tokens;
  request.sampling.temperature = 0.0f;
  request.ignores_eos = true;
  request.num_logprobs = 0;
  return request;
}

struct Answer {
  Outcome outcome;
  EngineMetrics metrics;
};

Answer run_with(const EngineOptions& options, const Request& request) {
  const auto engine = cycling_engine(options);
  Answer answer{run_one(*engine, request), {}};
  engine->step();  // takes in what was under way
  answer.metrics = engine->metrics();
  EXPECT_EQ(answer.metrics.num_held_pages, 0);
  return answer;
}

void expect_same(const Outcome& got, const Outcome& want) {
  EXPECT_EQ(got.tokens, want.tokens);
  EXPECT_EQ(got.logprobs, want.logprobs);
  EXPECT_EQ(got.text, want.text);
  EXPECT_EQ(got.finish, want.finish);
}

TEST(Speculation, ATextThatRepeatsItselfTakesFarFewerSteps) {
  const Answer plain = run_with(tiny_options(), cycling_request());
  EXPECT_EQ(plain.metrics.num_drafted_tokens, 0);
  for (const bool runs_ahead : {false, true}) {
    EngineOptions options = with_lookup();
    options.runs_ahead = runs_ahead;
    const Answer fast = run_with(options, cycling_request());
    expect_same(fast.outcome, plain.outcome);
    EXPECT_LT(fast.metrics.num_steps, 25) << "of " << plain.metrics.num_steps;
    EXPECT_GT(fast.metrics.num_drafted_tokens, 70);
    EXPECT_EQ(fast.metrics.num_accepted_tokens, fast.metrics.num_drafted_tokens);
    EXPECT_EQ(fast.metrics.num_generated_tokens, 100);
  }
}

TEST(Speculation, ATextWithoutRepetitionTakesTheSameSteps) {
  for (const bool runs_ahead : {false, true}) {
    EngineOptions options = tiny_options();
    options.runs_ahead = runs_ahead;
    const Answer plain = run_with(options, cycling_request(7));
    options.speculation = Speculation::lookup;
    const Answer fast = run_with(options, cycling_request(7));
    expect_same(fast.outcome, plain.outcome);
    EXPECT_EQ(fast.metrics.num_steps, plain.metrics.num_steps);
    EXPECT_EQ(fast.metrics.num_drafted_tokens, 0);
  }
}

// Draws that are hardly better than chance: of eight tokens, so that short matches are frequent.
TEST(Speculation, WastesFewRowsOnGuessesThatAreWrong) {
  const auto engine = tiny_engine(with_lookup(), /*vocab=*/8);
  Request request = cycling_request(120);
  request.sampling.temperature = 10.0f;
  request.sampling.seed = 4;
  run_one(*engine, request);
  const EngineMetrics metrics = engine->metrics();
  const int64_t num_wasted = metrics.num_drafted_tokens - metrics.num_accepted_tokens;
  EXPECT_GT(num_wasted, 0);
  EXPECT_LT(num_wasted, 40) << "no more than were foreseen, and a few";
}

TEST(Speculation, KeepsToTheLimitsOfAStep) {
  const Answer plain = run_with(tiny_options(), cycling_request());
  for (const int64_t limit : {1, 2, 3, 5}) {
    SCOPED_TRACE(limit);
    EngineOptions of_batch = with_lookup(), of_tokens = with_lookup(), of_logits = with_lookup();
    of_batch.max_batch = limit;
    of_tokens.max_step_tokens = limit;
    of_logits.max_step_logits = limit;
    for (const EngineOptions& options : {of_batch, of_tokens, of_logits}) {
      const Answer fast = run_with(options, cycling_request());
      expect_same(fast.outcome, plain.outcome);
      EXPECT_EQ(fast.metrics.num_drafted_tokens > 0, limit > 1);
    }
  }
}

// Pages for one sequence and a bit.
TEST(Speculation, PreemptsNoMoreThanPlainStepsDo) {
  EngineOptions options = tiny_options(/*num_pages=*/20);
  options.max_context = 64;
  int64_t num_preemptions = -1;
  for (const bool has_drafts : {false, true}) {
    if (has_drafts) options = with_lookup(options);
    const auto engine = cycling_engine(options);
    Outcomes outcomes;
    engine->submit(cycling_request(60));
    engine->submit(cycling_request(60));
    run_all(*engine, outcomes);
    for (const auto& [id, outcome] : outcomes) EXPECT_EQ(outcome.tokens.size(), 60u);
    const EngineMetrics metrics = engine->metrics();
    if (!has_drafts) num_preemptions = metrics.num_preemptions;
    EXPECT_GT(metrics.num_preemptions, 0) << "memory must be short";
    EXPECT_LE(metrics.num_preemptions, num_preemptions);
    EXPECT_EQ(metrics.num_held_pages, 0);
  }
}

TEST(Speculation, StopsWithinADraft) {
  Request request = cycling_request();
  request.stop = {"gha"};
  request.min_new_tokens = 50;
  const Answer plain = run_with(tiny_options(), request);
  EXPECT_EQ(plain.outcome.finish, FinishReason::stop);
  const Answer fast = run_with(with_lookup(), request);
  expect_same(fast.outcome, plain.outcome);
  EXPECT_LT(fast.metrics.num_steps, plain.metrics.num_steps / 2);

  request.stop = {};
  request.stop_tokens = {5};
  expect_same(run_with(with_lookup(), request).outcome, run_with(tiny_options(), request).outcome);
}

TEST(Speculation, IsNotForPenaltiesAndBeams) {
  Request request = cycling_request(40);
  request.sampling.presence_penalty = 0.01f;
  EXPECT_EQ(run_with(with_lookup(), request).metrics.num_drafted_tokens, 0);
  request = cycling_request(40);
  request.beam_width = 2;
  EXPECT_EQ(run_with(with_lookup(), request).metrics.num_drafted_tokens, 0);
}

TEST(Speculation, ServesSiblingsOnceTheyHaveForked) {
  Request request = cycling_request(40);
  request.num_outputs = 3;
  const Answer answer = run_with(with_lookup(), request);
  EXPECT_EQ(answer.outcome.tokens.size(), 40u);
  EXPECT_GT(answer.metrics.num_accepted_tokens, 60);
}

TEST(Speculation, ACancelledRequestEnds) {
  const auto engine = cycling_engine(with_lookup());
  const RequestId id = engine->submit(cycling_request()).value();
  Outcomes outcomes;
  for (int i = 0; i < 12; ++i) collect(engine->step(), outcomes);
  EXPECT_GT(engine->metrics().num_drafted_tokens, 0);
  engine->cancel(id);
  run_all(*engine, outcomes);
  EXPECT_EQ((outcomes[{id, 0}].finish), FinishReason::cancelled);
  EXPECT_EQ(engine->metrics().num_held_pages, 0);
}

}  // namespace
}  // namespace tessera
