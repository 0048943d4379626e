// Sampling as a whole: bias, penalties, bans, the draw, log-probabilities.
// SPDX-License-Identifier: MIT
#include "engine/sampling/sample.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/core/message_of.h"
#include "tests/engine/sampling/reference.h"

namespace tessera::engine::testing {
namespace {

using tessera::testing::message_of;
using Tokens = std::vector<int32_t>;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr SamplingParams kGreedy = {.temperature = 0.0f};

int32_t sample_at(std::span<const float> logits, const SamplingParams& params, int64_t position,
                  uint64_t seed = 1, int32_t sequence = 0) {
  SamplerScratch scratch;
  return sample(logits, params, {}, {}, seed, sequence, position, scratch);
}

// The token chosen greedily from logits that `params` and `counts` have changed.
int32_t greedy(std::span<const float> logits, SamplingParams params, const TokenCounts& counts = {},
               const Tokens& banned = {}) {
  SamplerScratch scratch;
  params.temperature = 0.0f;
  return sample(logits, params, counts, banned, 0, 0, 0, scratch);
}

TEST(Sampler, GreedyTakesTheFirstOfTheLargest) {
  EXPECT_EQ(greedy(std::vector<float>{1, 5, 3, 5}, kGreedy), 1);
  EXPECT_EQ(greedy(std::vector<float>{-kInfinity, -7, -kInfinity}, kGreedy), 1);
}

TEST(Sampler, BiasIsAddedAndHeldWithinAHundred) {
  const std::vector<float> logits = {0, 99, 0};
  EXPECT_EQ(greedy(logits, {.logit_bias = {{2, 98}}}), 1);
  EXPECT_EQ(greedy(logits, {.logit_bias = {{2, 99.5f}}}), 2);
  EXPECT_EQ(greedy(std::vector<float>{0, 101, 0}, {.logit_bias = {{2, 5000}}}), 1);
  EXPECT_EQ(greedy(std::vector<float>{0, 101, 0.5f}, {.logit_bias = {{1, -5000}}}), 1);
  EXPECT_EQ(greedy(std::vector<float>{0, -kInfinity}, {.logit_bias = {{1, 100}}}), 0);
}

TEST(Sampler, RepetitionPenaltyShrinksTokensSeenInPromptOrOutput) {
  const std::vector<float> logits = {4, 3, -1, -1.5f};
  EXPECT_EQ(greedy(logits, {.repetition_penalty = 1.5f}, {.generated = {{0, 3}}}), 1);
  EXPECT_EQ(greedy(logits, {.repetition_penalty = 1.5f}, {.prompt = {{0, 1}}}), 1);
  EXPECT_EQ(greedy(logits, {.repetition_penalty = 1.3f}, {.generated = {{0, 9}}}), 0)
      << "once, however often";
  EXPECT_EQ(
      greedy(logits, {.repetition_penalty = 1.3f}, {.generated = {{0, 1}}, .prompt = {{0, 1}}}), 0)
      << "once, though seen in both";
  // A negative logit is multiplied: it moves away from zero.
  EXPECT_EQ(
      greedy(std::vector<float>{-1, -1.2f}, {.repetition_penalty = 1.3f}, {.prompt = {{0, 1}}}), 1);
}

TEST(Sampler, PresenceCountsOnceAndFrequencyEachTime) {
  const std::vector<float> logits = {4, 3};
  const TokenCounts thrice = {.generated = {{0, 3}}};
  EXPECT_EQ(greedy(logits, {.presence_penalty = 0.9f}, thrice), 0);
  EXPECT_EQ(greedy(logits, {.presence_penalty = 1.1f}, thrice), 1);
  EXPECT_EQ(greedy(logits, {.frequency_penalty = 0.3f}, thrice), 0);
  EXPECT_EQ(greedy(logits, {.frequency_penalty = 0.4f}, thrice), 1);
  EXPECT_EQ(greedy(logits, {.presence_penalty = 2.0f}, {.prompt = {{0, 3}}}), 0)
      << "the prompt is not output";
  EXPECT_EQ(greedy(std::vector<float>{3, 4}, {.presence_penalty = -1.1f}, thrice), 0);
}

TEST(Sampler, PenaltiesFollowTheBiasAndEachOther) {
  // (2 + 2) / 2 - 0.5 = 1.5; any other order gives 2.5, 2.75 or 1.75.
  const SamplingParams params = {
      .repetition_penalty = 2.0f, .presence_penalty = 0.5f, .logit_bias = {{0, 2.0f}}};
  const TokenCounts counts = {.generated = {{0, 1}}};
  EXPECT_EQ(greedy(std::vector<float>{2, 1.49f}, params, counts), 0);
  EXPECT_EQ(greedy(std::vector<float>{2, 1.51f}, params, counts), 1);
}

TEST(Sampler, HugeLogitsStayFiniteUnderPenalties) {
  constexpr float kHuge = std::numeric_limits<float>::max();
  SamplerScratch scratch;
  const std::vector<float> logits = {kHuge, -kHuge, 1.0f};
  const SamplingParams params = {.repetition_penalty = 0.1f};
  const TokenCounts counts = {.generated = {{0, 1}, {1, 1}}};
  EXPECT_EQ(sample(logits, params, counts, {}, 1, 0, 0, scratch), 0);
  EXPECT_FALSE(is_broken(scratch.logits));
}

TEST(Sampler, BannedTokensAreNeverChosen) {
  const std::vector<float> logits = {1, 9, 2};
  EXPECT_EQ(greedy(logits, {}, {}, {1}), 2);
  EXPECT_EQ(greedy(logits, {.logit_bias = {{1, 100}}}, {}, {1}), 2);
  EXPECT_EQ(greedy(logits, {}, {}, {1, 2, 77, -1}), 0);
  SamplerScratch scratch;
  for (int64_t position = 0; position < 2000; ++position) {
    ASSERT_NE(sample(logits, {}, {}, Tokens{1}, 1, 0, position, scratch), 1);
  }
}

TEST(Sampler, AgreesWithBruteForceForRandomParameters) {
  std::mt19937 random(8);
  SamplerScratch scratch;
  for (int i = 0; i < 3000; ++i) {
    const size_t vocab = 1 + random() % 200;
    const std::vector<float> logits = random_logits(random, vocab);
    const SamplingParams params = random_params(random, vocab);
    const std::vector<Choice> choices = reference_choices(logits, params);
    for (int64_t position = 0; position < 5; ++position) {
      const int32_t want = reference_draw(choices, random_uniform(4, 2, position));
      ASSERT_EQ(sample(logits, params, {}, {}, 4, 2, position, scratch), want) << "case " << i;
    }
  }
}

// Pearson's statistic of 200,000 draws against the exact probabilities.
TEST(Sampler, DrawsFollowTheProbabilities) {
  std::mt19937 random(12);
  constexpr int kDraws = 200000;
  for (const SamplingParams& params :
       std::vector<SamplingParams>{{},
                                   {.temperature = 0.5f},
                                   {.temperature = 3.0f},
                                   {.top_k = 5},
                                   {.top_p = 0.8f},
                                   {.min_p = 0.1f},
                                   {.typical_p = 0.7f},
                                   {.temperature = 1.3f, .top_k = 9, .top_p = 0.9f}}) {
    std::vector<float> logits(20);
    for (float& logit : logits) logit = static_cast<float>(random() % 1000) / 400.0f;
    const std::vector<Choice> choices = reference_choices(logits, params);
    std::vector<int> counts(logits.size(), 0);
    SamplerScratch scratch;
    for (int64_t position = 0; position < kDraws; ++position) {
      ++counts[static_cast<size_t>(sample(logits, params, {}, {}, 99, 0, position, scratch))];
    }
    double statistic = 0.0;
    int num_drawn = 0;
    for (const Choice& choice : choices) {
      const double want = kDraws * choice.probability;
      const int got = counts[static_cast<size_t>(choice.token)];
      ASSERT_GT(want, 50.0) << "too few for the statistic to mean anything";
      statistic += (got - want) * (got - want) / want;
      num_drawn += got;
    }
    EXPECT_EQ(num_drawn, kDraws) << "a token was drawn that had been cut";
    const double freedom = static_cast<double>(choices.size()) - 1.0;
    EXPECT_LT(statistic, freedom + 5.0 * std::sqrt(2.0 * freedom));
  }
}

TEST(Sampler, ADrawDependsOnSeedSequenceAndPositionAlone) {
  std::mt19937 random(2);
  const std::vector<float> logits = random_logits(random, 500);
  const std::vector<float> other = random_logits(random, 900);
  const SamplingParams params = {.top_k = 100, .top_p = 0.98f};
  Tokens forwards(200), backwards(200);
  SamplerScratch shared;
  for (int64_t i = 0; i < 200; ++i) {
    forwards[static_cast<size_t>(i)] = sample(logits, params, {}, {}, 5, 1, i, shared);
  }
  for (int64_t i = 199; i >= 0; --i) {
    sample(other, {.typical_p = 0.5f}, {}, Tokens{3}, 6, 0, i, shared);  // a row in between
    backwards[static_cast<size_t>(i)] = sample(logits, params, {}, {}, 5, 1, i, shared);
  }
  EXPECT_EQ(forwards, backwards);
  int num_same_seed = 0, num_same_sequence = 0;
  for (int64_t i = 0; i < 200; ++i) {
    num_same_seed += sample_at(logits, params, i, 6, 1) == forwards[static_cast<size_t>(i)];
    num_same_sequence += sample_at(logits, params, i, 5, 2) == forwards[static_cast<size_t>(i)];
  }
  EXPECT_LT(num_same_seed, 150);
  EXPECT_LT(num_same_sequence, 150);
}

TEST(Sampler, PaddingOfTheVocabularyChangesNothing) {
  std::mt19937 random(21);
  for (int i = 0; i < 500; ++i) {
    const size_t vocab = 1 + random() % 300;
    std::vector<float> logits = random_logits(random, vocab);
    SamplingParams params = random_params(random, vocab);
    if (params.top_k >= static_cast<int32_t>(vocab)) params.top_k = 0;
    const int32_t token = sample_at(logits, params, i);
    logits.resize(vocab + random() % 100, -kInfinity);
    ASSERT_EQ(sample_at(logits, params, i), token) << "case " << i;
  }
}

TEST(Sampler, ExtremesHaveOneAnswer) {
  std::vector<float> lonely(300, -kInfinity);
  lonely[123] = -4.0f;
  const std::vector<float> logits = {1, 2, 3, 2.9f};
  for (int64_t position = 0; position < 100; ++position) {
    EXPECT_EQ(sample_at(lonely, {}, position), 123);
    EXPECT_EQ(sample_at(lonely, {.top_k = 5, .top_p = 0.5f, .typical_p = 0.5f}, position), 123);
    EXPECT_EQ(sample_at(logits, {.temperature = 1e-3f}, position), 2);
    EXPECT_EQ(sample_at(logits, {.top_p = 0.0f}, position), 2);
    EXPECT_EQ(sample_at(logits, {.top_k = 1}, position), 2);
    EXPECT_EQ(sample_at(logits, {.min_p = 1.0f}, position), 2);
  }
}

TEST(Sampler, RefusesARowWithNothingToChoose) {
  const auto message_for = [](std::vector<float> logits, const SamplingParams& params,
                              const Tokens& banned) {
    SamplerScratch scratch;
    return message_of([&] { sample(logits, params, {}, banned, 0, 0, 0, scratch); });
  };
  EXPECT_NE(message_for({1, -kInfinity}, {}, {0}).find("none of 2 tokens is left"),
            std::string::npos);
  EXPECT_NE(message_for({1, 2}, kGreedy, {0, 1}).find("2 are banned"), std::string::npos);
  EXPECT_NE(message_for({-kInfinity}, {.logit_bias = {{0, 100}}}, {}).find("0 are banned"),
            std::string::npos);
  EXPECT_NE(message_for({}, {}, {}).find("empty"), std::string::npos);
  EXPECT_NE(message_for({1, 2}, {.logit_bias = {{2, 1}}}, {}).find("token 2 is outside"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera::engine::testing
