// What is begun early, and what loading reports: the same answers and errors as without it.
// SPDX-License-Identifier: MIT
#include "engine/early_start.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "engine/make_engine.h"
#include "tests/core/message_of.h"

namespace tessera::testing {
namespace {

using engine::EarlyStart;

const std::filesystem::path kModel =
    std::filesystem::path(TESSERA_SOURCE_DIR) / "models/tessera-13m";

TEST(EarlyStart, GivesTheTokenizerOfTheFolderOnce) {
  EarlyStart early;
  EXPECT_FALSE(early.take_tokenizer());
  early.begin_tokenizer(kModel);
  EarlyStart moved = std::move(early);
  const std::optional<Tokenizer> tokenizer = moved.take_tokenizer();
  ASSERT_TRUE(tokenizer);
  EXPECT_EQ(tokenizer->encode("The river"), engine::read_tokenizer(kModel).encode("The river"));
  EXPECT_GT(moved.tokenizer_seconds(), 0);
  EXPECT_FALSE(moved.take_tokenizer());
}

TEST(EarlyStart, ThrowsWhatReadingTheTokenizerThrew) {
  const std::filesystem::path empty = std::filesystem::path(TESSERA_SOURCE_DIR) / "models";
  const std::string want = message_of([&] { engine::read_tokenizer(empty); });
  EXPECT_NE(want.find("has no tokenizer.json"), std::string::npos);
  EarlyStart early;
  early.begin_tokenizer(empty);
  EXPECT_EQ(message_of([&] { early.take_tokenizer(); }), want);
}

TEST(EarlyStart, MakesNothingForTheCpuOrForAGpuThatDoesNotExist) {
  EarlyStart early;
  early.begin_device(cpu_device());
  EXPECT_EQ(early.take_carrier(cpu_device()), nullptr);
  const Device absent = cuda_device(num_cuda_devices());
  early.begin_device(absent);
  EXPECT_EQ(early.take_carrier(absent), nullptr);
}

TEST(EarlyStart, AnEngineThatWasBegunEarlyAnswersTheSame) {
  EngineOptions options;
  options.dtype = DType::f32;
  options.max_context = 64;
  options.max_batch = 1;
  const auto answer = [&](EarlyStart early) {
    const std::unique_ptr<Engine> engine = engine::load(
        engine::open_model(kModel, model::load_config(kModel), options, std::move(early)));
    Request request;
    request.prompt = engine->tokenizer()->encode("The river");
    request.sampling.temperature = 0.0f;
    request.max_new_tokens = 8;
    return run_to_end(*engine, std::move(request)).front().text;
  };
  EarlyStart early;
  early.begin_tokenizer(kModel);
  EXPECT_EQ(answer(std::move(early)), answer({}));
}

TEST(LoadPhases, AreReportedInOrderWithTheBytesOfTheWeights) {
  std::vector<LoadPhase> phases;
  EngineOptions options;
  options.max_context = 64;
  options.max_batch = 1;
  options.on_phase = [&](const LoadPhase& phase) { phases.push_back(phase); };
  const std::unique_ptr<Engine> engine = Engine::load(kModel, options);
  ASSERT_EQ(phases.size(), 3u);
  EXPECT_EQ(phases[0].name, "tokenizer");
  EXPECT_EQ(phases[1].name, "weights");
  EXPECT_EQ(phases[1].num_bytes, 2 * 12'587'904);
  EXPECT_EQ(phases[2].name, "prepare");
  for (const LoadPhase& phase : phases) EXPECT_GT(phase.seconds, 0) << phase.name;
}

}  // namespace
}  // namespace tessera::testing
