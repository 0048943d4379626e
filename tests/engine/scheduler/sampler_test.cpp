// The sampler of a step: one result per row, and errors that stay in their row.
// SPDX-License-Identifier: MIT
#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tessera::testing {
namespace {

using engine::ActiveRequest;
using engine::BatchRow;
using engine::RowResult;
using engine::Sequence;

constexpr int64_t kVocab = 5;

// A sequence that consists of its prompt.
struct Subject {
  explicit Subject(std::vector<int32_t> prompt) {
    request.request.prompt = prompt;
    request.request.sampling.temperature = 0.0f;
    request.max_new_tokens = 4;
    sequence.request = &request;
    sequence.tokens = std::move(prompt);
  }
  // All its tokens in one chunk, with logits for the last `num_logits`.
  BatchRow row(int64_t first_logit, int64_t num_logits) {
    return {&sequence, -1, 0, std::ssize(sequence.tokens), first_logit, num_logits};
  }
  ActiveRequest request;
  Sequence sequence;
};

TEST(Sampler, GivesEveryRowThatEndsWithTheLastTokenANextOne) {
  Subject first({0, 1}), second({2}), unfinished({0, 1, 2});
  engine::Sampler sampler(kVocab, 4);
  std::vector<BatchRow> rows = {first.row(0, 1), unfinished.row(1, 0), second.row(1, 1)};
  rows[1].num_tokens = 2;                            // one more to compute
  const std::vector<float> logits = {0, 0, 9, 0, 0,  //
                                     0, 0, 0, 0, 9};
  const std::span<RowResult> results = sampler.sample(rows, logits);
  ASSERT_EQ(results.size(), 3u);
  ASSERT_EQ(results[0].tokens.size(), 1u);
  EXPECT_EQ(results[0].tokens[0].token, 2);
  EXPECT_TRUE(results[1].tokens.empty());
  ASSERT_EQ(results[2].tokens.size(), 1u);
  EXPECT_EQ(results[2].tokens[0].token, 4);
}

TEST(Sampler, ARowThatIsNotFiniteFailsAlone) {
  Subject broken({0, 1, 3}), sound({2});
  engine::Sampler sampler(kVocab, 2);
  const std::vector<BatchRow> rows = {broken.row(0, 1), sound.row(1, 1)};
  std::vector<float> logits(2 * kVocab, 0.0f);
  logits[3] = std::numeric_limits<float>::quiet_NaN();
  logits[kVocab + 1] = 5.0f;
  const std::span<RowResult> results = sampler.sample(rows, logits);
  EXPECT_NE(results[0].error.find("after token 2 are not finite"), std::string::npos)
      << results[0].error;
  EXPECT_TRUE(results[0].tokens.empty());
  EXPECT_TRUE(results[1].error.empty());
  EXPECT_EQ(results[1].tokens.at(0).token, 1);
}

TEST(Sampler, ARowWithoutAChoiceFailsAlone) {
  Subject banned({0}), sound({2});
  banned.request.stop_tokens = {0, 1, 2, 3, 4};
  banned.request.request.min_new_tokens = 1;
  engine::Sampler sampler(kVocab, 2);
  const std::vector<BatchRow> rows = {banned.row(0, 1), sound.row(1, 1)};
  const std::vector<float> logits(2 * kVocab, 1.0f);
  const std::span<RowResult> results = sampler.sample(rows, logits);
  EXPECT_FALSE(results[0].error.empty());
  EXPECT_EQ(results[1].tokens.size(), 1u);
}

TEST(Sampler, ScoresThePromptTokensThatFollow) {
  Subject subject({0, 3, 1});
  subject.request.request.wants_prompt_logprobs = true;
  engine::Sampler sampler(kVocab, 1);
  const std::vector<BatchRow> rows = {subject.row(0, 3)};
  std::vector<float> logits(3 * kVocab, 0.0f);
  logits[3] = 2.0f;
  const std::span<RowResult> results = sampler.sample(rows, logits);
  ASSERT_EQ(results[0].prompt_logprobs.size(), 2u);
  EXPECT_NEAR(results[0].prompt_logprobs[0], 2.0 - std::log(4.0 + std::exp(2.0)), 1e-6);
  EXPECT_NEAR(results[0].prompt_logprobs[1], -std::log(5.0), 1e-6);
  EXPECT_EQ(results[0].tokens.size(), 1u);
}

TEST(Sampler, SamplesOnceForEverySibling) {
  Subject subject({0, 1});
  subject.sequence.num_rows = 3;
  subject.request.request.sampling.temperature = 1.0f;
  subject.request.seed = 7;
  engine::Sampler sampler(kVocab, 1);
  const std::vector<BatchRow> rows = {subject.row(0, 1)};
  const std::vector<float> logits(kVocab, 0.0f);
  const std::span<RowResult> results = sampler.sample(rows, logits);
  ASSERT_EQ(results[0].tokens.size(), 3u);
  engine::SamplerScratch scratch;
  for (int32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(results[0].tokens[static_cast<size_t>(i)].token,
              engine::sample(logits, subject.request.request.sampling, {}, {}, 7, i, 2, scratch));
  }
}

}  // namespace
}  // namespace tessera::testing
