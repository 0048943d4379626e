// The bundled model through the whole engine, against the outputs it was shipped with.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/engine/scheduler/tiny_model.h"

namespace tessera {
namespace {

using namespace tessera::testing;

const std::string kFolder = TESSERA_SOURCE_DIR "/models/tessera-13m";

EngineOptions f32_options() {
  EngineOptions options;
  options.dtype = DType::f32;
  options.max_context = 256;
  options.max_batch = 8;
  options.max_step_tokens = 64;
  return options;
}

TEST(BundledModel, RepeatsATextInFarFewerStepsWithLookup) {
  std::vector<int32_t> tokens[2];
  int64_t num_steps[2] = {};
  for (const bool has_drafts : {false, true}) {
    EngineOptions options = f32_options();
    options.max_batch = 16;
    if (has_drafts) options.speculation = Speculation::lookup;
    const std::unique_ptr<Engine> engine = Engine::load(kFolder, options);
    Request request;
    request.prompt = engine->tokenizer()->encode(
        "The cat sat on the mat. The cat sat on the mat. The cat sat on the mat.");
    request.sampling.temperature = 0.0f;
    request.max_new_tokens = 200;
    request.ignores_eos = true;
    const std::vector<SequenceOutput> outputs = run_to_end(*engine, request);
    tokens[has_drafts] = ids_of(outputs.front().tokens);
    num_steps[has_drafts] = engine->metrics().num_steps;
  }
  EXPECT_EQ(tokens[1], tokens[0]);
  EXPECT_LT(num_steps[1] * 2, num_steps[0]);
}

TEST(BundledModel, GivesItsGreedyTokensForAllPromptsAtOnce) {
  std::ifstream file(kFolder + "/oracle.json");
  const nlohmann::json oracle = nlohmann::json::parse(file);
  EngineOptions options = f32_options();
  int64_t done = 0, total = -1;
  options.on_load = [&](int64_t done_bytes, int64_t total_bytes) {
    EXPECT_GE(done_bytes, done);
    done = done_bytes;
    total = total_bytes;
  };
  const std::unique_ptr<Engine> engine = Engine::load(kFolder, options);
  EXPECT_EQ(done, total) << "loading reports its end";
  ASSERT_NE(engine->tokenizer(), nullptr);

  const size_t num_prompts = oracle["prompts"].size();
  ASSERT_EQ(num_prompts, 8u);
  std::vector<RequestId> ids;
  for (size_t i = 0; i < num_prompts; ++i) {
    Request request;
    request.prompt = engine->tokenizer()->prefix();
    for (const int32_t id : engine->tokenizer()->encode(oracle["prompts"][i].get<std::string>())) {
      request.prompt.push_back(id);
    }
    EXPECT_EQ(request.prompt, oracle["prompt_ids"][i].get<std::vector<int32_t>>());
    request.sampling.temperature = 0.0f;
    request.max_new_tokens = static_cast<int64_t>(oracle["greedy"][i].size());
    ids.push_back(engine->submit(request).value());
  }
  Outcomes outcomes;
  while (engine->has_work()) collect(engine->step(), outcomes);
  for (size_t i = 0; i < num_prompts; ++i) {
    const Outcome& outcome = outcomes[{ids[i], 0}];
    EXPECT_EQ(outcome.tokens, oracle["greedy"][i].get<std::vector<int32_t>>()) << "prompt " << i;
    EXPECT_EQ(outcome.text, engine->tokenizer()->decode(outcome.tokens));
    EXPECT_EQ(outcome.finish, FinishReason::length);
  }
}

}  // namespace
}  // namespace tessera
