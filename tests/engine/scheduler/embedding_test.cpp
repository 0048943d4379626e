// Embeddings of prompts: the model's last hidden states, pooled.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "model/safetensors.h"
#include "tests/engine/scheduler/tiny_model.h"

namespace tessera {
namespace {

using namespace tessera::testing;

const std::string kModelFolder = TESSERA_SOURCE_DIR "/models/tessera-13m";

Outcome embed(engine::EngineImpl& engine, const std::vector<int32_t>& prompt, Pooling pooling) {
  Request request;
  request.prompt = prompt;
  request.pooling = pooling;
  request.max_new_tokens = 0;
  const Outcome outcome = run_one(engine, request);
  EXPECT_EQ(outcome.finish, FinishReason::stop) << outcome.error;
  EXPECT_TRUE(outcome.tokens.empty());
  return outcome;
}

std::unique_ptr<model::Model> bundled_model() {
  const model::ModelConfig config = model::load_config(kModelFolder);
  return model::load_model(model::Checkpoint::open(kModelFolder), config, {.dtype = DType::f32});
}

// The product of a token's state and the model's head must be the logits that another
// implementation computes. They are on record with five decimals; errors of f32 stay below 1e-3.
TEST(Embedding, OfTheLastTokenIsWhatTheHeadReads) {
  std::ifstream file(kModelFolder + "/oracle.json");
  const nlohmann::json oracle = nlohmann::json::parse(file);
  const size_t which = oracle["logits_prompt"].get<size_t>();
  const auto prompt = oracle["prompt_ids"][which].get<std::vector<int32_t>>();
  std::unique_ptr<model::Model> model = bundled_model();
  const TensorView head = model->weights().find("model.embed_tokens.weight").values;  // it is tied
  EngineOptions options;
  options.dtype = DType::f32;
  options.max_context = 64;
  const auto engine = engine_over(std::move(model), options);

  std::vector<double> sum(static_cast<size_t>(head.size(1)), 0.0);
  for (size_t count = 1; count <= prompt.size(); ++count) {
    const std::vector<int32_t> part(prompt.begin(), prompt.begin() + static_cast<int64_t>(count));
    const std::vector<float> state = embed(*engine, part, Pooling::last).embedding;
    ASSERT_EQ(state.size(), sum.size());
    const nlohmann::json& want = oracle["logits"][count - 1];
    for (size_t token = 0; token < want.size(); ++token) {
      double logit = 0.0;
      for (size_t i = 0; i < state.size(); ++i) {
        logit += double{state[i]} * double{head.as<float>()[token * state.size() + i]};
      }
      ASSERT_NEAR(logit, want[token].get<double>(), 1e-3) << "token " << token;
    }
    // A state does not depend on what follows, so the mean is that of the prefixes' last states.
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += double{state[i]};
    const std::vector<float> mean = embed(*engine, part, Pooling::mean).embedding;
    for (size_t i = 0; i < sum.size(); ++i) {
      ASSERT_EQ(mean[i], static_cast<float>(sum[i] / static_cast<double>(count)));
    }
  }
}

TEST(Embedding, OfTheLastTokenReadsTheCacheAndTheMeanDoesNot) {
  const auto engine = tiny_engine();
  const std::vector<int32_t> prompt = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  const Outcome first = embed(*engine, prompt, Pooling::last);
  const Outcome again = embed(*engine, prompt, Pooling::last);
  EXPECT_EQ(first.num_cached_tokens, 0);
  EXPECT_EQ(again.num_cached_tokens, 8);
  EXPECT_EQ(again.embedding, first.embedding);
  EXPECT_EQ(embed(*engine, prompt, Pooling::mean).num_cached_tokens, 0);
}

TEST(Embedding, IsRefusedWithTokensToGenerate) {
  const auto engine = tiny_engine();
  Request request;
  request.prompt = {1};
  request.pooling = Pooling::mean;
  request.max_new_tokens = 4;
  try {
    engine->submit(request);
    FAIL() << "not refused";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "request: max_new_tokens is 4 with pooling, which generates nothing; give 0");
  }
}

TEST(Embedding, OfABrokenModelIsAnError) {
  std::unique_ptr<model::Model> model = tiny_model(tiny_config());
  const TensorView table = model->weights().find("model.embed_tokens.weight").values;
  table.as<float>()[3 * table.size(1)] = std::numeric_limits<float>::quiet_NaN();
  const auto engine = engine_over(std::move(model), tiny_options());
  Request request;
  request.prompt = {1, 2, 3, 4};
  request.pooling = Pooling::mean;
  request.max_new_tokens = 0;
  const Outcome outcome = run_one(*engine, request);
  EXPECT_EQ(outcome.finish, FinishReason::error);
  EXPECT_EQ(outcome.error.find("the model's hidden state of token 2 is not finite"), 0u)
      << outcome.error;
  EXPECT_TRUE(outcome.embedding.empty());
}

}  // namespace
}  // namespace tessera
