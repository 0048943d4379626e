// An engine whose GPU faults or hangs in the middle of a step, in a process of its own.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/bad_kernels.h"
#include "tests/core/message_of.h"
#include "tests/engine/scheduler/tiny_model.h"
#include "tests/gpu.h"

namespace tessera {
namespace {

using namespace tessera::testing;
using engine::StepStage;

class EngineFailureDeathTest : public GpuTest {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    GpuTest::SetUp();
  }
};

EngineOptions gpu_options() {
  EngineOptions options = tiny_options();
  options.device = cuda_device();
  options.page_size = 16;
  options.kv_bytes = 64 * 16 * tiny_config().kv_bytes_per_token(DType::f32);
  options.max_batch = 4;
  return options;
}

std::vector<RequestId> submit_some(Engine& engine) {
  std::vector<RequestId> ids;
  for (int32_t i = 0; i < 8; ++i) {
    Request request;
    request.prompt = {3 * i, 3 * i + 1, 3 * i + 2};
    request.max_new_tokens = 20;
    if (i == 1) request.num_outputs = 2;
    ids.push_back(engine.submit(request).value());
  }
  return ids;
}

[[noreturn]] void fault_in_a_step() {
  bool is_well = true;
  const auto expect = [&](bool ok, const char* what) {
    if (!ok) std::fprintf(stderr, "not so: %s\n", what);
    is_well = is_well && ok;
  };
  {
    const auto engine = tiny_engine(gpu_options());
    const std::vector<RequestId> ids = submit_some(*engine);
    Outcomes outcomes;
    for (int i = 0; i < 3; ++i) collect(engine->step(), outcomes);
    expect(outcomes.size() < 9, "some wait");
    engine->on_stage([](StepStage stage) {
      if (stage == StepStage::forward) launch_wild_write();
    });
    for (int i = 0; i < 2; ++i) collect(engine->step(), outcomes);  // the engine runs ahead
    expect(outcomes.size() == 9, "every request has an answer");
    for (const auto& [id, outcome] : outcomes) {
      expect(outcome.finish == FinishReason::error, "it is an error");
      expect(outcome.error == outcomes.begin()->second.error, "it is the same for all");
    }
    std::fprintf(stderr, "error: %s\n", outcomes.begin()->second.error.c_str());
    expect(!engine->has_work() && engine->metrics().is_dead, "the engine is dead");
    expect(engine->step().empty(), "a later step does nothing");
    const std::string refusal = message_of([&] { submit_some(*engine); });
    std::fprintf(stderr, "refusal: %s\n", refusal.c_str());
  }  // and it can be destroyed
  std::_Exit(is_well ? 0 : 1);
}

TEST_F(EngineFailureDeathTest, AFaultEndsEveryRequestAndNamesTheKernel) {
  EXPECT_EXIT(fault_in_a_step(), ::testing::ExitedWithCode(0),
              "error: .*cuda:0 reports an illegal memory access was encountered "
              ".cudaErrorIllegalAddress., most likely raised by one of the last kernels that "
              "Tessera launched: .*"
              "wild_write_kernel.*; this process cannot use the device any more\n"
              "refusal: engine: it takes no requests since a step failed: .*cuda:0 reports an "
              "illegal memory access");
}

[[noreturn]] void hang_in_a_step() {
  EngineOptions options = gpu_options();
  options.step_timeout_s = 3;  // the first step loads kernels
  const auto engine = tiny_engine(options);
  submit_some(*engine);
  for (int i = 0; i < 3; ++i) engine->step();
  engine->on_stage([](StepStage stage) {
    if (stage == StepStage::forward) launch_spin(30);
  });
  for (int i = 0; i < 2; ++i) engine->step();  // the engine runs ahead
  std::_Exit(0);
}

TEST_F(EngineFailureDeathTest, AKernelThatHangsEndsTheProcessAndIsNamed) {
  EXPECT_EXIT(hang_in_a_step(), ::testing::ExitedWithCode(kStepTimeoutStatus),
              "it hangs in wait, with [0-9]+ sequences and [0-9]+ tokens in the batch; last "
              "kernels launched: .*spin_kernel.*; the process ends with status 4");
}

class EngineMemoryOnGpu : public GpuTest {};

TEST_F(EngineMemoryOnGpu, TooLargeACacheIsRefusedAndASmallerOneRuns) {
  EngineOptions options = gpu_options();
  options.kv_bytes = int64_t{1} << 45;
  const std::string message = message_of([&] { tiny_engine(options); });
  EXPECT_TRUE(message.starts_with("engine: kv_bytes is 35184372088832; ")) << message;
  const auto engine = tiny_engine(gpu_options());
  submit_some(*engine);
  Outcomes outcomes;
  run_all(*engine, outcomes);
  EXPECT_EQ(outcomes.size(), 9u);
  for (const auto& [id, outcome] : outcomes) EXPECT_NE(outcome.finish, FinishReason::error);
}

}  // namespace
}  // namespace tessera
