// Logprobs of prompts and of generated tokens, against each other.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/engine/scheduler/tiny_model.h"

namespace tessera {
namespace {

using namespace tessera::testing;

std::vector<int32_t> random_prompt(int count) {
  std::mt19937 random(23);
  std::vector<int32_t> prompt;
  for (int i = 0; i < count; ++i) {
    prompt.push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(kTinyVocab)));
  }
  return prompt;
}

TEST(Logprobs, OfThePromptAreTheSameInAnyChunks) {
  Request request;
  request.prompt = random_prompt(50);
  request.wants_prompt_logprobs = true;
  request.max_new_tokens = 0;
  std::vector<float> want;
  for (const int64_t max_logits : {64, 8, 3, 1}) {
    EngineOptions options = tiny_options();
    options.max_step_tokens = 64;
    options.max_step_logits = max_logits;
    const auto engine = tiny_engine(options);
    const Outcome outcome = run_one(*engine, request);
    EXPECT_EQ(outcome.finish, FinishReason::length);
    EXPECT_TRUE(outcome.tokens.empty());
    ASSERT_EQ(outcome.prompt_logprobs.size(), 49u);
    if (want.empty()) want = outcome.prompt_logprobs;
    EXPECT_EQ(outcome.prompt_logprobs, want);
    EXPECT_GE(engine->metrics().num_steps, 50 / max_logits);
  }
}

TEST(Logprobs, OfGeneratedTokensEqualTheirRecomputationAsAPrompt) {
  const auto engine = tiny_engine();
  Request request;
  request.prompt = random_prompt(7);
  request.max_new_tokens = 10;
  request.sampling.seed = 3;
  request.sampling.top_k = 20;  // logprobs are of the model's distribution, not of what is left
  request.num_logprobs = 0;
  const Outcome generated = run_one(*engine, request);
  ASSERT_EQ(generated.logprobs.size(), 10u);

  Request again;
  again.prompt = request.prompt;
  again.prompt.insert(again.prompt.end(), generated.tokens.begin(), generated.tokens.end());
  again.wants_prompt_logprobs = true;
  again.max_new_tokens = 0;
  const Outcome recomputed = run_one(*engine, again);
  ASSERT_EQ(recomputed.prompt_logprobs.size(), 16u);
  for (size_t i = 0; i < 10; ++i) {
    EXPECT_FLOAT_EQ(generated.logprobs[i], recomputed.prompt_logprobs[6 + i]);
  }
}

TEST(Logprobs, OfAllTokensSumToOne) {
  const auto engine = tiny_engine(tiny_options(), /*vocab=*/16);
  Request request;
  request.prompt = {1, 2, 3};
  request.max_new_tokens = 3;
  request.sampling.temperature = 0.0f;
  request.num_logprobs = 16;
  for (const SequenceOutput& output : run_to_end(*engine, request)) {
    for (const OutputToken& token : output.tokens) {
      ASSERT_EQ(token.top.size(), 16u);
      EXPECT_EQ(token.top[0].token, token.token) << "greedy takes the most probable";
      EXPECT_EQ(token.top[0].logprob, token.logprob);
      double total = 0.0;
      for (size_t i = 0; i < 16; ++i) {
        total += std::exp(static_cast<double>(token.top[i].logprob));
        EXPECT_TRUE(i == 0 || token.top[i].logprob <= token.top[i - 1].logprob);
      }
      EXPECT_NEAR(total, 1.0, 1e-5);
    }
  }
}

TEST(Logprobs, OfAOneTokenPromptAreNone) {
  const auto engine = tiny_engine();
  Request request;
  request.prompt = {5};
  request.wants_prompt_logprobs = true;
  request.max_new_tokens = 0;
  const Outcome outcome = run_one(*engine, request);
  EXPECT_EQ(outcome.finish, FinishReason::length);
  EXPECT_TRUE(outcome.prompt_logprobs.empty());
}

}  // namespace
}  // namespace tessera
