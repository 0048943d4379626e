// The sampler of a step: one result per row, and errors that stay in their row.
// SPDX-License-Identifier: MIT
#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
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
  // All its tokens in one chunk.
  BatchRow row(int64_t first_draw, int64_t num_draws = 1) {
    return {.sequence = &sequence,
            .num_tokens = std::ssize(sequence.tokens),
            .completes = true,
            .first_draw = first_draw,
            .num_draws = num_draws};
  }
  ActiveRequest request;
  Sequence sequence;
};

// A sampler and the device's part of it, on the CPU, from logits that a test makes up.
struct Steps {
  explicit Steps(int64_t max_batch)
      : sampler(kVocab, max_batch),
        device({.draws = max_batch, .logits = 4 * max_batch, .vocab = kVocab, .context = 64},
               cpu_device()) {}

  std::span<RowResult> run(std::span<const BatchRow> rows, std::vector<float> logits) {
    sampler.describe(rows, sampling);
    const auto num_draws = std::ssize(sampling.draws);
    const TensorView view = TensorView::contiguous(
        logits.data(), DType::f32, {std::ssize(logits) / kVocab, kVocab}, cpu_device());
    device.begin(sampling, num_draws, {});
    device.draw(view, num_draws,
                {.has_edits = sampling.has_edits(), .has_masks = sampling.has_masks()}, {});
    device.finish(sampling, view, {}, {});
    const std::span<RowResult> results = sampler.read(rows, device.wait());
    device.release();
    return results;
  }

  engine::Sampler sampler;
  model::TokenSampler device;
  model::HostSampling sampling;
};

TEST(Sampler, GivesEveryRowThatEndsWithTheLastTokenANextOne) {
  Subject first({0, 1}), second({2}), unfinished({0, 1, 2});
  Steps steps(4);
  std::vector<BatchRow> rows = {first.row(0), unfinished.row(1, 0), second.row(1)};
  rows[1].num_tokens = 2;  // one more to compute
  rows[1].completes = false;
  const std::span<RowResult> results = steps.run(rows, {0, 0, 9, 0, 0,  //
                                                        0, 0, 0, 0, 9});
  ASSERT_EQ(results.size(), 3u);
  ASSERT_EQ(results[0].tokens.size(), 1u);
  EXPECT_EQ(results[0].tokens[0].token, 2);
  EXPECT_TRUE(results[1].tokens.empty());
  ASSERT_EQ(results[2].tokens.size(), 1u);
  EXPECT_EQ(results[2].tokens[0].token, 4);
}

TEST(Sampler, ARowThatIsNotFiniteFailsAlone) {
  Subject broken({0, 1, 3}), sound({2});
  Steps steps(2);
  const std::vector<BatchRow> rows = {broken.row(0), sound.row(1)};
  std::vector<float> logits(2 * kVocab, 0.0f);
  logits[3] = std::numeric_limits<float>::quiet_NaN();
  logits[kVocab + 1] = 5.0f;
  const std::span<RowResult> results = steps.run(rows, logits);
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
  Steps steps(2);
  const std::vector<BatchRow> rows = {banned.row(0), sound.row(1)};
  const std::span<RowResult> results = steps.run(rows, std::vector<float>(2 * kVocab, 1.0f));
  EXPECT_NE(results[0].error.find("left to choose"), std::string::npos) << results[0].error;
  EXPECT_EQ(results[1].tokens.size(), 1u);
}

TEST(Sampler, BansWhatWouldStopUntilTheMinimum) {
  Subject subject({0, 1});
  subject.request.stop_tokens = {3};
  subject.request.request.min_new_tokens = 1;
  subject.request.request.sampling.logit_bias = {{3, 50.0f}, {2, 1.0f}};  // a ban wins
  Steps steps(1);
  std::vector<BatchRow> rows = {subject.row(0)};
  EXPECT_EQ(steps.run(rows, {0, 0, 0, 9, 0})[0].tokens.at(0).token, 2);
  rows[0].start = 2;  // one token further, when the minimum has been reached
  rows[0].num_tokens = 1;
  EXPECT_EQ(steps.run(rows, {0, 0, 0, 9, 0})[0].tokens.at(0).token, 3);
}

TEST(Sampler, ScoresThePromptTokensThatFollow) {
  Subject subject({0, 3, 1});
  subject.request.request.wants_prompt_logprobs = true;
  Steps steps(1);
  std::vector<BatchRow> rows = {subject.row(0)};
  rows[0].num_scores = 2;
  const std::vector<float> logits = {0, 0, 0, 0, 0,  // the draw's row comes first
                                     0, 0, 0, 2, 0,  //
                                     0, 0, 0, 0, 0};
  const std::span<RowResult> results = steps.run(rows, logits);
  ASSERT_EQ(results[0].prompt_logprobs.size(), 2u);
  EXPECT_NEAR(results[0].prompt_logprobs[0], 2.0 - std::log(4.0 + std::exp(2.0)), 1e-5);
  EXPECT_NEAR(results[0].prompt_logprobs[1], -std::log(5.0), 1e-5);
  EXPECT_EQ(results[0].tokens.size(), 1u);
}

TEST(Sampler, EveryDrawOfSiblingsIsItsOwn) {
  Subject subject({0, 1});
  subject.sequence.num_rows = 40;
  subject.request.request.sampling.temperature = 1.0f;
  subject.request.seed = 7;
  Steps steps(40);
  const std::vector<BatchRow> rows = {subject.row(0, 40)};
  std::vector<RowResult> together;
  for (const RowResult& result : steps.run(rows, std::vector<float>(40 * kVocab, 0.0f))) {
    together.push_back(result);
  }
  ASSERT_EQ(together[0].tokens.size(), 40u);
  std::vector<int> counts(kVocab, 0);
  for (const OutputToken& token : together[0].tokens) ++counts[static_cast<size_t>(token.token)];
  EXPECT_GT(*std::ranges::min_element(counts), 0) << "40 draws of 5 equal tokens";
  for (int32_t i = 0; i < 40; ++i) {  // sibling i alone draws what it drew among the others
    subject.sequence.index = i;
    const std::vector<BatchRow> alone = {subject.row(0)};
    EXPECT_EQ(steps.run(alone, std::vector<float>(kVocab, 0.0f))[0].tokens[0].token,
              together[0].tokens[static_cast<size_t>(i)].token);
  }
}

// The device counts what it draws, so that the host need not see a token before the next is drawn.
TEST(Sampler, PenaltiesCountTokensTheHostHasNotSeen) {
  Subject subject({0, 1});
  subject.request.request.sampling.presence_penalty = 2.0f;
  Steps steps(2);
  const std::vector<float> logits = {0, 0, 3, 2, 1.5f};
  std::vector<BatchRow> rows = {subject.row(0)};
  EXPECT_EQ(steps.run(rows, logits)[0].tokens.at(0).token, 2);  // then 1, as token 2 costs 2
  rows[0].start = 2;
  rows[0].num_tokens = 1;
  EXPECT_EQ(steps.run(rows, logits)[0].tokens.at(0).token, 3);
  rows[0].start = 3;
  EXPECT_EQ(steps.run(rows, logits)[0].tokens.at(0).token, 4);
  EXPECT_EQ(steps.sampling.new_lists.size(), 0u);
  subject.sequence.seen = {};  // preempted: the next draw begins with what the sequence holds
  EXPECT_EQ(steps.run(rows, logits)[0].tokens.at(0).token, 2);
  EXPECT_EQ(steps.sampling.new_lists.size(), 1u);
}

TEST(Sampler, ReportsAlternativesAsManyAsEachRequestWants) {
  Subject two({0}), none({1}), silent({2});
  two.request.request.num_logprobs = 2;
  none.request.request.num_logprobs = 0;
  Steps steps(3);
  const std::vector<BatchRow> rows = {two.row(0), none.row(1), silent.row(2)};
  const std::span<RowResult> results = steps.run(rows, {0, 1, 4, 3, 0,  //
                                                        5, 0, 0, 0, 0,  //
                                                        0, 6, 0, 0, 0});
  const OutputToken& first = results[0].tokens.at(0);
  ASSERT_EQ(first.top.size(), 2u);
  EXPECT_EQ(first.top[0].token, 2);
  EXPECT_EQ(first.top[1].token, 3);
  EXPECT_FLOAT_EQ(first.top[0].logprob, first.logprob);
  EXPECT_TRUE(results[1].tokens.at(0).top.empty());
  EXPECT_LT(results[1].tokens[0].logprob, 0.0f);
  EXPECT_EQ(results[2].tokens.at(0).logprob, 0.0f) << "not asked for";
}

}  // namespace
}  // namespace tessera::testing
