// The bundled model against oracle.json: what Hugging Face transformers computes for it.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/model/runner.h"
#include "tests/model/temporary_folder.h"

namespace tessera::testing {
namespace {

using model::Checkpoint;
using model::LoadOptions;
using model::ModelConfig;
using model::WeightFormat;
using Logits = std::vector<std::vector<float>>;

struct Oracle {
  std::vector<std::vector<int32_t>> prompts;
  std::vector<std::vector<int32_t>> greedy;
  size_t logits_prompt;
  Logits logits;                  // [position][the first 64]
  std::vector<double> logsumexp;  // [position]

  Oracle() {
    std::ifstream file(bundled_model() / "oracle.json");
    const nlohmann::json oracle = nlohmann::json::parse(file);
    oracle["prompt_ids"].get_to(prompts);
    oracle["greedy"].get_to(greedy);
    oracle["logits_prompt"].get_to(logits_prompt);
    oracle["logits"].get_to(logits);
    oracle["logsumexp"].get_to(logsumexp);
  }
};

class BundledModel : public ::testing::Test {
 protected:
  static Runner make_runner(const LoadOptions& options) {
    static dist::LocalCommunicator local;
    const ModelConfig config = model::load_config(bundled_model());
    const Checkpoint checkpoint = Checkpoint::open(bundled_model());
    return Runner(load_model(checkpoint, config, options), local);
  }
  // All rows of logits of a prompt in one step.
  static Logits prefill(Runner& runner, const std::vector<int32_t>& prompt) {
    Sequence sequence;
    const std::vector<Chunk> chunks = {{&sequence, prompt, true}};
    const TensorView logits = runner.step(chunks);
    Logits rows;
    for (int64_t row = 0; row < logits.size(0); ++row) rows.push_back(row_of(logits, row));
    runner.release(sequence);
    return rows;
  }
  // Greedy generation of all prompts at once; the logits of every step where they are asked for.
  static std::vector<std::vector<int32_t>> generate(
      Runner& runner, const std::vector<std::vector<int32_t>>& prompts, size_t num_tokens,
      std::vector<Logits>* all = nullptr) {
    std::vector<Sequence> sequences(prompts.size());
    std::vector<std::vector<int32_t>> tokens(prompts.size());
    std::vector<Chunk> chunks;
    for (size_t i = 0; i < prompts.size(); ++i) chunks.push_back({&sequences[i], prompts[i]});
    for (size_t step = 0; step < num_tokens; ++step) {
      const TensorView logits = runner.step(chunks);
      for (size_t i = 0; i < prompts.size(); ++i) {
        const std::vector<float> row = row_of(logits, static_cast<int64_t>(i));
        tokens[i].push_back(argmax_of(row));
        chunks[i].tokens = {tokens[i].back()};
        if (all != nullptr) (*all)[i].push_back(row);
      }
    }
    for (Sequence& sequence : sequences) runner.release(sequence);
    return tokens;
  }
  const Oracle oracle_;
};

TEST_F(BundledModel, GreedyTokensInF32AreTheOraclesForEveryPrompt) {
  Runner runner = make_runner({.dtype = DType::f32});
  ASSERT_EQ(oracle_.prompts.size(), 8u);
  for (size_t i = 0; i < oracle_.prompts.size(); ++i) {
    ASSERT_EQ(oracle_.greedy[i].size(), 64u);
    EXPECT_EQ(generate(runner, {oracle_.prompts[i]}, 64)[0], oracle_.greedy[i]) << "prompt " << i;
  }
}

// How far logits may differ when the final hidden state is off by `relative` of its norm in a
// random direction: four standard deviations of its projection on a row of the embedding.
double logit_bound(double relative) {
  const Checkpoint checkpoint = Checkpoint::open(bundled_model());
  const ModelConfig config = model::load_config(bundled_model());
  const auto loaded = load_model(checkpoint, config, {.dtype = DType::f32});
  const auto norm = [&](const char* name, int64_t row) {
    const TensorView& tensor = loaded->weights().find(name).values;
    double squares = 0.0;
    for (int64_t i = 0; i < config.hidden; ++i) {
      const double value = tensor.as<float>()[row * config.hidden + i];
      squares += value * value;
    }
    return std::sqrt(squares);
  };
  double row_norm = 0.0;
  for (int64_t row = 0; row < config.vocab; ++row) {
    row_norm = std::max(row_norm, norm("model.embed_tokens.weight", row));
  }
  const double hidden_norm = norm("model.norm.weight", 0);  // a normalised state times the weight
  return 4.0 * relative * hidden_norm * row_norm / std::sqrt(static_cast<double>(config.hidden));
}

void expect_near_oracle(const Oracle& oracle, const Logits& logits, double bound) {
  ASSERT_EQ(logits.size(), oracle.logits.size());
  double worst = 0.0;
  for (size_t position = 0; position < logits.size(); ++position) {
    const std::vector<float>& want = oracle.logits[position];
    double sum = 0.0;
    for (const float logit : logits[position]) sum += std::exp(double{logit});
    EXPECT_NEAR(std::log(sum), oracle.logsumexp[position], bound) << "position " << position;
    for (size_t i = 0; i < want.size(); ++i) {
      const double difference = std::fabs(double{logits[position][i]} - double{want[i]});
      worst = std::max(worst, difference);
      EXPECT_LE(difference, bound) << "position " << position << ", logit " << i << ": "
                                   << logits[position][i] << ", oracle " << want[i];
    }
  }
  ::testing::Test::RecordProperty("worst", std::to_string(worst));
  ::testing::Test::RecordProperty("bound", std::to_string(bound));
}

// The final state is a sum of thirteen (the embedding and two blocks in each of six layers), each a
// product of up to 1024 terms. Rounding errors add up like a random walk: sqrt(13 * 1024) units of
// 2^-24 on either side. The oracle's file keeps five decimals.
TEST_F(BundledModel, LogitsInF32AreWithinRoundingOfTheOracles) {
  Runner runner = make_runner({.dtype = DType::f32});
  const double relative = std::sqrt(2.0 * 13.0 * 1024.0) * std::ldexp(1.0, -24);
  expect_near_oracle(oracle_, prefill(runner, oracle_.prompts[oracle_.logits_prompt]),
                     logit_bound(relative) + 5e-6);
}

// A layer rounds its activations at most eight times: two norms, q k v, attention, its output, gate
// and up, their product, and the block's output. Each rounding is off by up to half a unit.
TEST_F(BundledModel, SixteenBitsAreCloseToTheOracle) {
  for (const auto& [dtype, half_unit] :
       {std::pair{DType::bf16, std::ldexp(1.0, -9)}, std::pair{DType::f16, std::ldexp(1.0, -12)}}) {
    Runner runner = make_runner({.dtype = dtype});
    expect_near_oracle(oracle_, prefill(runner, oracle_.prompts[oracle_.logits_prompt]),
                       logit_bound(std::sqrt(6.0 * 8.0) * half_unit));
  }
}

// A quantised weight is off by up to half a step, 1 / 254 of its row's largest value, uniformly;
// the largest of 384 normal values is about 4 standard deviations. So each of a layer's four
// products, and the head, gains noise of 4 / 127 / sqrt(12) of its size.
TEST_F(BundledModel, Int8WeightsAreCloseToTheOracle) {
  Runner runner = make_runner({.dtype = DType::f32, .format = WeightFormat::int8});
  const double noise = 4.0 / 127.0 / std::sqrt(12.0);
  expect_near_oracle(oracle_, prefill(runner, oracle_.prompts[oracle_.logits_prompt]),
                     logit_bound(std::sqrt(6.0 * 4.0 + 1.0) * noise));
}

// Prompts of different lengths in one batch: first chunks only, then decodes only. Bit for bit.
TEST_F(BundledModel, ABatchOfAllPromptsGivesTheLogitsOfEachAlone) {
  for (const LoadOptions& options :
       {LoadOptions{.dtype = DType::f32}, LoadOptions{.dtype = DType::bf16},
        LoadOptions{.dtype = DType::bf16, .format = WeightFormat::int8}}) {
    Runner runner = make_runner(options);
    std::vector<Logits> together(oracle_.prompts.size());
    generate(runner, oracle_.prompts, 6, &together);
    for (size_t i = 0; i < oracle_.prompts.size(); ++i) {
      std::vector<Logits> alone(1);
      generate(runner, {oracle_.prompts[i]}, 6, &alone);
      EXPECT_EQ(together[i], alone[0]) << "prompt " << i;
    }
  }
}

// A prompt computed in chunks, some of one token, some beside another sequence's decode.
TEST_F(BundledModel, ChunkedPrefillGivesTheBitsOfTheWhole) {
  std::vector<int32_t> prompt = oracle_.prompts[0];
  prompt.insert(prompt.end(), oracle_.greedy[0].begin(), oracle_.greedy[0].end());
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Runner runner = make_runner({.dtype = dtype});
    const Logits whole = prefill(runner, prompt);
    Sequence sequence, other;
    Logits chunked;
    const std::vector<size_t> sizes = {1, 5, 16, 3, 1, 1, 30};
    for (size_t i = 0, begin = 0; begin < prompt.size(); ++i) {
      const size_t end = std::min(begin + sizes[i % sizes.size()], prompt.size());
      const auto first = prompt.begin() + static_cast<std::ptrdiff_t>(begin);
      const auto last = prompt.begin() + static_cast<std::ptrdiff_t>(end);
      std::vector<Chunk> chunks = {{&sequence, {first, last}, true}};
      const bool has_mate = i % 2 == 1;
      if (has_mate) chunks.insert(chunks.begin(), {&other, {prompt[i]}});
      const TensorView logits = runner.step(chunks);
      for (int64_t row = has_mate ? 1 : 0; row < logits.size(0); ++row) {
        chunked.push_back(row_of(logits, row));
      }
      begin = end;
    }
    EXPECT_EQ(chunked, whole);
  }
}

}  // namespace
}  // namespace tessera::testing
