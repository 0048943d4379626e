// Steps that fail: who gets an error, whether the engine goes on, and the end of one that hangs.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <new>
#include <thread>
#include <utility>

#include "core/launch_log.h"
#include "tessera/core/device_fault.h"
#include "tests/core/message_of.h"
#include "tests/engine/scheduler/tiny_model.h"

namespace tessera {
namespace {

using namespace tessera::testing;
using engine::StepStage;

constexpr StepStage kStages[] = {StepStage::plan, StepStage::assemble, StepStage::forward,
                                 StepStage::wait, StepStage::sample,   StepStage::commit};
const std::string kFaultText = "cuda:0 reports an illegal memory access in norm_kernel";

Request make_request(int32_t first, int64_t max_new_tokens) {
  Request request;
  request.prompt = {first, first + 1, first + 2};
  request.max_new_tokens = max_new_tokens;
  request.sampling.temperature = 0.0f;
  return request;
}

// Requests of every kind, more than fit into a batch, so that the last ones wait.
std::vector<RequestId> submit_some(Engine& engine) {
  std::vector<RequestId> ids;
  for (int32_t i = 0; i < 8; ++i) {
    Request request = make_request(3 * i, 20);
    if (i == 1) request.num_outputs = 2;
    if (i == 2) request.beam_width = 2;
    ids.push_back(engine.submit(request).value());
  }
  return ids;
}

EngineOptions few_at_once(bool runs_ahead) {
  EngineOptions options = tiny_options();
  options.max_batch = 5;
  options.runs_ahead = runs_ahead;
  return options;
}

// Throws in one stage, once.
template <class Exception>
void throw_in(engine::EngineImpl& engine, StepStage stage, Exception exception) {
  engine.on_stage([stage, exception, was_thrown = false](StepStage entered) mutable {
    if (entered != stage || std::exchange(was_thrown, true)) return;
    throw exception;
  });
}

// Every request has ended with this error, and the engine takes no more.
void expect_dead(engine::EngineImpl& engine, const Outcomes& outcomes, size_t num_sequences,
                 const std::string& text) {
  EXPECT_EQ(outcomes.size(), num_sequences);
  for (const auto& [id, outcome] : outcomes) {
    EXPECT_EQ(outcome.finish, FinishReason::error);
    EXPECT_EQ(outcome.error, text);
  }
  EXPECT_FALSE(engine.has_work());
  EXPECT_TRUE(engine.step().empty());
  const EngineMetrics metrics = engine.metrics();
  EXPECT_TRUE(metrics.is_dead);
  EXPECT_EQ(metrics.num_running, 0);
  EXPECT_EQ(metrics.num_waiting, 0);
  EXPECT_EQ(metrics.num_finished, 8);
  const std::string refusal = message_of([&] { engine.submit(make_request(1, 2)); });
  EXPECT_TRUE(refusal.starts_with("engine: it takes no requests since a step failed: " + text))
      << refusal;
}

// Whether the engine runs ahead.
class FailureOfAStep : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Ahead, FailureOfAStep, ::testing::Bool());

TEST_P(FailureOfAStep, AFaultOfTheDeviceEndsEveryRequestAndTheEngine) {
  for (const StepStage stage : kStages) {
    for (const int num_steps : {0, 1, 6}) {
      SCOPED_TRACE(std::string(name(stage)) + " after " + std::to_string(num_steps));
      const auto engine = tiny_engine(few_at_once(GetParam()));
      submit_some(*engine);
      Outcomes outcomes;
      for (int i = 0; i < num_steps; ++i) collect(engine->step(), outcomes);
      throw_in(*engine, stage, DeviceFault(kFaultText));
      collect(engine->step(), outcomes);
      expect_dead(*engine, outcomes, 9, kFaultText);
    }
  }
}

TEST_P(FailureOfAStep, PagesHeldByADeadEngineAreFreeWhereTheyWereSound) {
  for (const StepStage stage : {StepStage::forward, StepStage::wait, StepStage::sample}) {
    const auto engine = tiny_engine(few_at_once(GetParam()));
    submit_some(*engine);
    engine->step();
    EXPECT_GT(engine->metrics().num_held_pages, 0);
    throw_in(*engine, stage, DeviceFault(kFaultText));
    engine->step();
    EXPECT_EQ(engine->metrics().num_held_pages, 0);
    engine->check_pages();
  }
}

// In these stages queues and pages may be half changed, so the engine cannot go on.
TEST_P(FailureOfAStep, MemoryThatRunsOutBetweenChangesEndsTheEngine) {
  for (const StepStage stage : {StepStage::plan, StepStage::assemble, StepStage::commit}) {
    SCOPED_TRACE(name(stage));
    const auto engine = tiny_engine(few_at_once(GetParam()));
    submit_some(*engine);
    Outcomes outcomes;
    for (int i = 0; i < 3; ++i) collect(engine->step(), outcomes);
    throw_in(*engine, stage, std::bad_alloc());
    collect(engine->step(), outcomes);
    expect_dead(*engine, outcomes, 9, "out of memory in a step of the engine");
  }
}

TEST_P(FailureOfAStep, MemoryThatRunsOutInTheModelEndsTheBatchAndTheEngineGoesOn) {
  std::vector<Outcome> alone;
  for (int32_t i = 0; i < 6; ++i) alone.push_back(run_one(*tiny_engine(), make_request(9 * i, 12)));
  for (const StepStage stage : {StepStage::forward, StepStage::wait, StepStage::sample}) {
    for (const int kind : {0, 1}) {
      SCOPED_TRACE(std::string(name(stage)) + " " + std::to_string(kind));
      EngineOptions options = tiny_options();
      options.max_batch = 3;
      options.runs_ahead = GetParam();
      const auto engine = tiny_engine(options);
      std::vector<RequestId> ids;
      for (int32_t i = 0; i < 6; ++i)
        ids.push_back(engine->submit(make_request(9 * i, 12)).value());
      Outcomes outcomes;
      for (int i = 0; i < 4; ++i) collect(engine->step(), outcomes);
      if (kind == 0) throw_in(*engine, stage, std::bad_alloc());
      if (kind == 1) throw_in(*engine, stage, Error("allocate: no room for 64 bytes on cuda:0"));
      collect(engine->step(), outcomes);
      engine->check_pages();
      EXPECT_FALSE(engine->metrics().is_dead);
      run_all(*engine, outcomes);
      for (size_t i = 0; i < ids.size(); ++i) {
        const Outcome& outcome = outcomes[{ids[i], 0}];
        if (i >= 3) {
          EXPECT_EQ(outcome.finish, FinishReason::length) << i;
          EXPECT_EQ(outcome.tokens, alone[i].tokens) << i;
          continue;
        }
        const char* want = kind == 0 ? "out of memory in a step of the engine"
                                     : "allocate: no room for 64 bytes on cuda:0";
        EXPECT_EQ(outcome.finish, FinishReason::error) << i;
        EXPECT_EQ(outcome.error, want);
        // A step that cannot be launched does not take the one in progress with it.
        const bool has_one_more = GetParam() && stage == StepStage::forward;
        EXPECT_EQ(outcome.tokens.size(), has_one_more ? 5u : 4u);
      }
      EXPECT_EQ(engine->metrics().num_held_pages, 0);
      // The same prompts again: the prefix cache holds nothing that was not computed.
      EXPECT_EQ(run_one(*engine, make_request(0, 12)).tokens, alone[0].tokens);
    }
  }
}

TEST(Failure, ReachesWhoeverWaitsForOneRequest) {
  const auto engine = tiny_engine();
  throw_in(*engine, StepStage::forward, DeviceFault(kFaultText));
  Request request = make_request(1, 5);
  request.num_outputs = 3;
  const std::vector<SequenceOutput> outputs = run_to_end(*engine, request);
  ASSERT_EQ(outputs.size(), 3u);
  for (const SequenceOutput& output : outputs) {
    EXPECT_EQ(output.finish, FinishReason::error);
    EXPECT_EQ(output.error, kFaultText);
  }
}

class WatchdogDeathTest : public ::testing::Test {
 protected:
  // The parent has threads, so the statement must run in a fresh process.
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

void hang_in(StepStage stage) {
  EngineOptions options = tiny_options();
  options.step_timeout_s = 2;  // more than a step takes on a busy machine
  const auto engine = tiny_engine(options);
  engine->submit(make_request(1, 5));
  engine->submit(make_request(7, 5));
  log_launch("_ZN7tessera7kernels11norm_kernelIfLi4EEEvNS0_10NormParamsE");
  engine->on_stage([stage](StepStage entered) {
    if (entered == stage) std::this_thread::sleep_for(std::chrono::minutes(2));
  });
  engine->step();
}

TEST_F(WatchdogDeathTest, EndsAProcessWhoseStepHangsAndSaysWhere) {
  const ::testing::ExitedWithCode status(kStepTimeoutStatus);
  EXPECT_EXIT(hang_in(StepStage::plan), status,
              "tessera: a step has taken [0-9]+ ms, and its limit is 2000 .--step-timeout.: it "
              "hangs in plan, with 0 sequences and 0 tokens in the batch; last kernels launched: "
              "norm_kernel; the process ends with status 4");
  EXPECT_EXIT(hang_in(StepStage::forward), status,
              "hangs in forward, with 2 sequences and 6 tokens in the batch");
  EXPECT_EXIT(hang_in(StepStage::commit), status, "hangs in commit, with 2 sequences");
}

TEST(Watchdog, LetsAnEngineIdleAndQuickStepsPass) {
  EngineOptions options = tiny_options();
  options.step_timeout_s = 3;
  const auto engine = tiny_engine(options);
  EXPECT_EQ(run_one(*engine, make_request(1, 3)).tokens.size(), 3u);
  throw_in(*engine, StepStage::forward, std::bad_alloc());
  EXPECT_EQ(run_one(*engine, make_request(1, 3)).finish, FinishReason::error);
  std::this_thread::sleep_for(std::chrono::milliseconds(4500));  // a step that failed is over too
  EXPECT_EQ(run_one(*engine, make_request(1, 3)).tokens.size(), 3u);
}

TEST(Watchdog, RefusesLimitsThatAreNone) {
  for (const double limit : {-1.0, 1e7, std::numeric_limits<double>::quiet_NaN()}) {
    EngineOptions options = tiny_options();
    options.step_timeout_s = limit;
    EXPECT_TRUE(
        message_of([&] { tiny_engine(options); }).starts_with("engine: step_timeout_s is "));
  }
}

}  // namespace
}  // namespace tessera
