// The life of requests: queues, priorities, siblings, and every way of ending early.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "tests/engine/scheduler/tiny_model.h"

namespace tessera {
namespace {

using namespace tessera::testing;

Request short_request(std::vector<int32_t> prompt, int64_t max_new_tokens) {
  Request request;
  request.prompt = std::move(prompt);
  request.max_new_tokens = max_new_tokens;
  request.sampling.temperature = 0.0f;
  return request;
}

std::vector<int32_t> counting(int32_t from, int32_t count) {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < count; ++i) ids.push_back((from + i) % static_cast<int32_t>(kTinyVocab));
  return ids;
}

TEST(Life, AnIdleEngineDoesNothing) {
  const auto engine = tiny_engine();
  EXPECT_FALSE(engine->has_work());
  EXPECT_TRUE(engine->step().empty());
  EXPECT_EQ(engine->metrics().num_steps, 0);
  EXPECT_EQ(engine->tokenizer(), nullptr);
  EXPECT_EQ(engine->vocab(), kTinyVocab);
  EXPECT_EQ(engine->max_context(), kTinyContext);
}

// A stop token is found when the next step is under way: that costs its row, and nothing else.
TEST(Life, AnEngineThatRunsAheadWastesOneRowOfASequenceThatStops) {
  const std::vector<std::string> pieces = {"a", "b", "c", "d", ""};
  std::vector<std::string> texts;
  for (const bool runs_ahead : {false, true}) {
    EngineOptions options = tiny_options();
    options.runs_ahead = runs_ahead;
    const auto engine = script_engine(pieces, options);
    Outcomes outcomes;
    const RequestId stopped = engine->submit(short_request({0}, 50)).value();
    const RequestId full = engine->submit(short_request({0}, 2)).value();
    run_all(*engine, outcomes);
    EXPECT_EQ((outcomes[{stopped, 0}].finish), FinishReason::stop);
    EXPECT_EQ((outcomes[{stopped, 0}].text), "bcd");
    EXPECT_EQ((outcomes[{full, 0}].finish), FinishReason::length);
    EXPECT_EQ((outcomes[{full, 0}].text), "bc");
    engine->step();  // takes in what was under way
    EXPECT_EQ(engine->metrics().num_wasted_rows, runs_ahead ? 1 : 0);
    EXPECT_EQ(engine->metrics().num_held_pages, 0);
    EXPECT_EQ(engine->metrics().num_generated_tokens, 6);
  }
}

TEST(Life, AFullQueueTakesNoMoreUntilSomeStart) {
  EngineOptions options = tiny_options();
  options.max_queue = 3;
  options.max_batch = 2;
  const auto engine = tiny_engine(options);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(engine->submit(short_request({1, 2}, 4)).has_value());
  EXPECT_FALSE(engine->submit(short_request({1, 2}, 4)).has_value());
  EXPECT_EQ(engine->metrics().num_waiting, 3);
  engine->step();
  EXPECT_EQ(engine->metrics().num_waiting, 1);
  EXPECT_TRUE(engine->submit(short_request({1, 2}, 4)).has_value());
  EXPECT_TRUE(engine->submit(short_request({1, 2}, 4)).has_value());
  EXPECT_FALSE(engine->submit(short_request({1, 2}, 4)).has_value());
}

TEST(Life, HigherPriorityStartsFirst) {
  EngineOptions options = tiny_options();
  options.max_batch = 1;
  const auto engine = tiny_engine(options);
  std::vector<RequestId> ids;
  for (const int32_t priority : {0, 5, 0, 5, -1}) {
    Request request = short_request({1, 2, 3}, 2);
    request.priority = priority;
    ids.push_back(engine->submit(request).value());
  }
  std::vector<RequestId> ended;
  while (engine->has_work()) {
    for (const SequenceOutput& news : engine->step()) {
      if (news.finish != FinishReason::none) ended.push_back(news.request);
    }
  }
  EXPECT_EQ(ended, (std::vector<RequestId>{ids[1], ids[3], ids[0], ids[2], ids[4]}));
}

TEST(Life, CancellingTakesEffectWithTheNextStepAndFreesThePages) {
  std::mt19937_64 random(17);
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  for (int round = 0; round < 20; ++round) {
    EngineOptions options = tiny_options(round % 2 == 0 ? 40 : 200);
    options.max_step_tokens = pick(4, 40);
    const auto engine = tiny_engine(options);
    std::vector<RequestId> ids;
    for (int i = 0; i < 12; ++i) {
      Request request = short_request(counting(pick(0, 90), pick(1, 30)), pick(1, 30));
      if (i % 4 == 1) request.num_outputs = 3;
      if (i % 4 == 2) request.beam_width = 2;
      ids.push_back(engine->submit(request).value());
    }
    Outcomes outcomes;
    for (int i = pick(0, 12); i > 0; --i) collect(engine->step(), outcomes);
    for (const RequestId id : ids) engine->cancel(id);
    engine->cancel(9999);  // unknown ones are ignored
    collect(engine->step(), outcomes);
    EXPECT_FALSE(engine->has_work());
    engine->check_pages();
    const EngineMetrics metrics = engine->metrics();
    EXPECT_EQ(metrics.num_held_pages, 0);
    EXPECT_EQ(metrics.num_running, 0);
    EXPECT_EQ(metrics.num_finished, 12);
    for (size_t i = 0; i < ids.size(); ++i) {
      const int32_t num_outputs = i % 4 == 1 ? 3 : 1;
      for (int32_t j = 0; j < num_outputs; ++j) {
        EXPECT_NE((outcomes[{ids[i], j}].finish), FinishReason::none);
      }
    }
  }
}

TEST(Life, CancellingOneLeavesTheOthersAsTheyWere) {
  const Outcome alone = run_one(*tiny_engine(), short_request(counting(5, 9), 12));
  const auto engine = tiny_engine();
  const RequestId kept = engine->submit(short_request(counting(5, 9), 12)).value();
  const RequestId dropped = engine->submit(short_request(counting(7, 9), 12)).value();
  Outcomes outcomes;
  for (int i = 0; i < 4; ++i) collect(engine->step(), outcomes);
  engine->cancel(dropped);
  run_all(*engine, outcomes);
  EXPECT_EQ((outcomes[{kept, 0}].tokens), alone.tokens);
  EXPECT_EQ((outcomes[{dropped, 0}].finish), FinishReason::cancelled);
  EXPECT_EQ((outcomes[{dropped, 0}].tokens.size()), 4u);
  EXPECT_EQ(engine->metrics().num_cancelled, 1);
}

TEST(Life, DeadlinesEndTheWaitingAndTheRunning) {
  Clock::time_point now{};
  EngineOptions options = tiny_options();
  options.max_batch = 1;
  options.now = [&] { return now; };
  const auto engine = tiny_engine(options);
  Request request = short_request({1, 2, 3}, 50);
  request.deadline = now + std::chrono::seconds(10);
  const RequestId running = engine->submit(request).value();
  request.deadline = now + std::chrono::seconds(5);
  const RequestId waiting = engine->submit(request).value();
  request.deadline.reset();
  request.max_new_tokens = 2;
  const RequestId patient = engine->submit(request).value();
  Outcomes outcomes;
  collect(engine->step(), outcomes);
  now += std::chrono::seconds(5);
  collect(engine->step(), outcomes);
  EXPECT_EQ((outcomes[{waiting, 0}].finish), FinishReason::deadline);
  EXPECT_EQ((outcomes[{running, 0}].finish), FinishReason::none);
  now += std::chrono::seconds(5);
  run_all(*engine, outcomes);
  EXPECT_EQ((outcomes[{running, 0}].finish), FinishReason::deadline);
  EXPECT_EQ((outcomes[{running, 0}].tokens.size()), 2u);
  EXPECT_EQ((outcomes[{patient, 0}].finish), FinishReason::length);
  EXPECT_EQ(engine->metrics().num_held_pages, 0);
}

TEST(Life, SiblingsShareThePagesOfTheirPrompt) {
  const auto engine = tiny_engine();
  Request request = short_request(counting(0, 16), 8);
  request.sampling.temperature = 1.5f;
  request.sampling.seed = 4;
  request.num_outputs = 4;
  const RequestId id = engine->submit(request).value();
  Outcomes outcomes;
  collect(engine->step(), outcomes);
  EngineMetrics metrics = engine->metrics();
  EXPECT_EQ(metrics.num_running, 4);
  EXPECT_EQ(metrics.num_prompt_tokens, 16) << "one prefill for all";
  EXPECT_EQ(metrics.num_held_pages, 4);
  EXPECT_EQ(metrics.num_shared_pages, 4);
  collect(engine->step(), outcomes);
  metrics = engine->metrics();
  EXPECT_EQ(metrics.num_held_pages, 4 + 4);
  EXPECT_EQ(metrics.num_shared_pages, 4);
  EXPECT_EQ(metrics.num_held_tokens, 16 + 4);
  run_all(*engine, outcomes);
  std::vector<int32_t> first_tokens;
  for (int32_t i = 0; i < 4; ++i) first_tokens.push_back(outcomes[{id, i}].tokens.at(0));
  EXPECT_NE(first_tokens, std::vector<int32_t>(4, first_tokens[0]));
  for (int32_t i = 0; i < 4; ++i) {
    EXPECT_EQ((outcomes[{id, i}].tokens.size()), 8u);
    for (int32_t j = 0; j < i; ++j) {
      EXPECT_NE((outcomes[{id, i}].tokens), (outcomes[{id, j}].tokens)) << "own random streams";
    }
  }
}

TEST(Life, SiblingsCopyThePageTheyShareInPart) {
  const auto engine = tiny_engine();
  Request request = short_request(counting(0, 14), 6);
  request.num_outputs = 3;
  const RequestId id = engine->submit(request).value();
  Outcomes outcomes;
  run_all(*engine, outcomes);
  const Outcome alone = run_one(*tiny_engine(), short_request(counting(0, 14), 6));
  for (int32_t i = 0; i < 3; ++i) EXPECT_EQ((outcomes[{id, i}].tokens), alone.tokens);
}

TEST(Life, ARequestWithBrokenLogitsFailsAlone) {
  const model::ModelConfig config = tiny_config();
  std::unique_ptr<model::Model> model = tiny_model(config);
  constexpr int32_t kPoison = 77;
  model->weights().find("model.embed_tokens.weight").values.as<float>()[kPoison * config.hidden] =
      std::numeric_limits<float>::quiet_NaN();
  const auto engine = engine_over(std::move(model), tiny_options(64));
  const Outcome alone = run_one(*tiny_engine(), short_request(counting(0, 20), 12));
  ASSERT_EQ(std::count(alone.tokens.begin(), alone.tokens.end(), kPoison), 0);
  Request poisoned = short_request({3, kPoison, 4}, 5);
  for (int round = 0; round < 6; ++round) {  // later rounds find the pages the poison was in
    const RequestId good = engine->submit(short_request(counting(0, 20), 12)).value();
    poisoned.num_outputs = round % 3 == 1 ? 2 : 1;
    poisoned.beam_width = round % 3 == 2 ? 2 : 0;
    const RequestId bad = engine->submit(poisoned).value();
    Outcomes outcomes;
    run_all(*engine, outcomes);
    EXPECT_EQ((outcomes[{good, 0}].tokens), alone.tokens);
    for (int32_t i = 0; i < poisoned.num_outputs; ++i) {
      const Outcome& outcome = outcomes[{bad, i}];
      EXPECT_EQ(outcome.finish, FinishReason::error);
      EXPECT_NE(outcome.error.find("not finite"), std::string::npos) << outcome.error;
      EXPECT_TRUE(outcome.tokens.empty());
    }
    EXPECT_EQ(engine->metrics().num_held_pages, 0);
  }
}

TEST(Life, MetricsSayHowWellMemoryIsUsed) {
  EngineOptions options = tiny_options(100);
  options.use_prefix_cache = false;
  const auto engine = tiny_engine(options);
  engine->submit(short_request(counting(0, 10), 20));
  engine->submit(short_request(counting(30, 5), 20));
  engine->step();
  const EngineMetrics metrics = engine->metrics();
  EXPECT_EQ(metrics.num_pages, 100);
  EXPECT_EQ(metrics.num_running, 2);
  EXPECT_EQ(metrics.num_steps, 1);
  EXPECT_EQ(metrics.num_prompt_tokens, 15);
  EXPECT_EQ(metrics.num_generated_tokens, 2);
  EXPECT_EQ(metrics.num_held_pages, 3 + 2);
  EXPECT_EQ(metrics.num_held_tokens, 15);
  EXPECT_DOUBLE_EQ(metrics.kv_waste, 5.0 / 20.0);
  EXPECT_DOUBLE_EQ(metrics.kv_share_of_contiguous, 20.0 / (2.0 * kTinyContext));
  EXPECT_EQ(metrics.kv_bytes_per_token, 2 * 2 * 64 * 4);
  EXPECT_EQ(metrics.kv_bytes, 100 * 4 * metrics.kv_bytes_per_token);
  EXPECT_GT(metrics.weight_bytes, 0);
  EXPECT_GT(metrics.activation_bytes, 0);
  EXPECT_GE(metrics.device_bytes, metrics.weight_bytes + metrics.kv_bytes);
  EXPECT_GE(metrics.peak_device_bytes, metrics.device_bytes);
  EXPECT_GT(metrics.peak_host_bytes, 0);
  Outcomes outcomes;
  run_all(*engine, outcomes);
  EXPECT_EQ(engine->metrics().num_idle_pages, 0);
  EXPECT_EQ(engine->metrics().num_finished, 2);
  EXPECT_EQ(engine->metrics().kv_waste, 0.0);
}

TEST(Life, ChunksKeepDecodesGoing) {
  EngineOptions options = tiny_options();
  options.max_step_tokens = 8;
  const auto engine = tiny_engine(options);
  const RequestId quick = engine->submit(short_request({1, 2}, 10)).value();
  engine->step();
  engine->submit(short_request(counting(0, 60), 2));
  for (int i = 1; i < 9; ++i) {  // the long prompt takes nine steps of seven tokens
    const std::vector<SequenceOutput> news = engine->step();
    ASSERT_EQ(news.size(), 1u);
    EXPECT_EQ(news[0].request, quick);
    EXPECT_EQ(news[0].tokens.size(), 1u);
  }
}

}  // namespace
}  // namespace tessera
