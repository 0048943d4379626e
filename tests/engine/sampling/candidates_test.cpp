// What top-k, typical, top-p and min-p keep, against brute force.
// SPDX-License-Identifier: MIT
#include "engine/sampling/candidates.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/engine/sampling/reference.h"

namespace tessera::engine::testing {
namespace {

using Tokens = std::vector<int32_t>;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<Candidate> candidates_of(std::span<const float> logits, const SamplingParams& params) {
  std::vector<Candidate> candidates, pool;
  truncate(logits, params, candidates, pool);
  return candidates;
}

Tokens kept(std::span<const float> logits, const SamplingParams& params) {
  Tokens tokens;
  for (const Candidate& candidate : candidates_of(logits, params)) {
    tokens.push_back(candidate.token);
  }
  return tokens;
}

std::vector<float> logs(std::initializer_list<double> probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

// The same tokens, and the same probabilities up to rounding in double.
void expect_same(std::span<const Candidate> got, std::span<const Choice> want) {
  ASSERT_EQ(got.size(), want.size());
  double total = 0.0;
  for (const Candidate& candidate : got) total += candidate.weight;
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].token, want[i].token);
    const double probability = want[i].probability;
    ASSERT_NEAR(got[i].weight / total, probability, 1e-11 * probability + 1e-14);
  }
}

TEST(Candidates, AgreeWithBruteForceForRandomParameters) {
  std::mt19937 random(5);
  for (int i = 0; i < 6000; ++i) {
    constexpr size_t kVocabs[] = {1, 2, 5, 17, 40, 300, 1500};
    const size_t vocab = kVocabs[random() % std::size(kVocabs)];
    const std::vector<float> logits = random_logits(random, vocab);
    const SamplingParams params = random_params(random, vocab);
    SCOPED_TRACE(::testing::Message()
                 << "case " << i << ": vocab " << vocab << " temperature " << params.temperature
                 << " top_k " << params.top_k << " typical_p " << params.typical_p << " top_p "
                 << params.top_p << " min_p " << params.min_p);
    expect_same(candidates_of(logits, params), reference_choices(logits, params));
    if (HasFatalFailure()) return;
  }
}

TEST(Candidates, AgreeWithBruteForceOnALargeVocabulary) {
  std::mt19937 random(6);
  constexpr size_t kVocab = 128256;
  for (const SamplingParams& params : std::vector<SamplingParams>{
           {.temperature = 0.8f, .top_k = 50, .top_p = 0.95f},
           {.temperature = 1.0f, .top_p = 0.9f},
           {.temperature = 2.0f, .top_p = 0.999f},
           {.temperature = 1.0f, .typical_p = 0.9f},
           {.temperature = 1.0f, .min_p = 0.05f},
           {.temperature = 0.7f, .top_k = 40000, .top_p = 0.5f, .typical_p = 0.8f}}) {
    const std::vector<float> logits = random_logits(random, kVocab);
    expect_same(candidates_of(logits, params), reference_choices(logits, params));
  }
}

TEST(Candidates, TopKKeepsTheFirstOfEquals) {
  const std::vector<float> logits = {1, 3, 2, 3, 2, 2};
  EXPECT_EQ(kept(logits, {.top_k = 1}), (Tokens{1}));
  EXPECT_EQ(kept(logits, {.top_k = 3}), (Tokens{1, 2, 3}));
  EXPECT_EQ(kept(logits, {.top_k = 4}), (Tokens{1, 2, 3, 4}));
  EXPECT_EQ(kept(logits, {.top_k = 6}), (Tokens{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(kept(logits, {.top_k = 1000}), (Tokens{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(kept(std::vector<float>(500, 1.5f), {.top_k = 3}), (Tokens{0, 1, 2}));
}

TEST(Candidates, TopPKeepsTheFewestThatReachIt) {
  const std::vector<float> equal(8, 0.25f);  // probabilities of exactly one eighth
  EXPECT_EQ(kept(equal, {.top_p = 0.25f}), (Tokens{0, 1}));
  EXPECT_EQ(kept(equal, {.top_p = 0.2500001f}), (Tokens{0, 1, 2}));
  EXPECT_EQ(kept(equal, {.top_p = 0.0f}), (Tokens{0}));
  const std::vector<float> logits = logs({0.1, 0.5, 0.1, 0.3});
  EXPECT_EQ(kept(logits, {.top_p = 0.4f}), (Tokens{1}));
  EXPECT_EQ(kept(logits, {.top_p = 0.7f}), (Tokens{1, 3}));
  EXPECT_EQ(kept(logits, {.top_p = 0.85f}), (Tokens{0, 1, 3}));
  EXPECT_EQ(kept(logits, {.top_p = 0.95f}), (Tokens{0, 1, 2, 3}));
}

TEST(Candidates, TopPSeesWhatTopKHasLeft) {
  const std::vector<float> logits = logs({0.4, 0.3, 0.2, 0.1});
  EXPECT_EQ(kept(logits, {.top_p = 0.5f}), (Tokens{0, 1}));
  EXPECT_EQ(kept(logits, {.top_k = 2, .top_p = 0.5f}), (Tokens{0})) << "4/7 is enough";
}

TEST(Candidates, MinPIsMeasuredAgainstTheBest) {
  const std::vector<float> logits = logs({0.1, 0.5, 0.04, 0.36});
  EXPECT_EQ(kept(logits, {.min_p = 0.19f}), (Tokens{0, 1, 3}));
  EXPECT_EQ(kept(logits, {.min_p = 0.21f}), (Tokens{1, 3}));
  EXPECT_EQ(kept(logits, {.min_p = 1.0f}), (Tokens{1}));
}

TEST(Candidates, TypicalMayLeaveOutTheMostProbable) {
  // Entropy 1.36 nats: tokens of probability 0.2 are the nearest to it, the best one is not.
  const std::vector<float> logits = logs({0.45, 0.2, 0.2, 0.1, 0.05});
  EXPECT_EQ(kept(logits, {.typical_p = 0.3f}), (Tokens{1, 2}));
  EXPECT_EQ(kept(logits, {.typical_p = 0.1f}), (Tokens{1}));
  EXPECT_EQ(kept(logits, {.min_p = 1.0f, .typical_p = 0.3f}), (Tokens{1, 2}));
}

TEST(Candidates, AlwaysLeaveOne) {
  std::mt19937 random(9);
  for (int i = 0; i < 500; ++i) {
    const std::vector<float> logits = random_logits(random, 1 + random() % 50);
    EXPECT_EQ(
        kept(logits, {.top_k = 1, .top_p = 1e-30f, .min_p = 1.0f, .typical_p = 1e-30f}).size(), 1u);
  }
}

TEST(Candidates, LeaveOutWhatCannotBeDrawn) {
  EXPECT_EQ(kept(std::vector<float>{-kInfinity, 2.0f, -kInfinity}, {}), (Tokens{1}));
  EXPECT_EQ(kept(std::vector<float>{-kInfinity, 2.0f, -kInfinity}, {.top_k = 2}), (Tokens{1}));
  EXPECT_EQ(kept(std::vector<float>{0.0f, -5000.0f}, {}), (Tokens{0}));
  EXPECT_EQ(kept(std::vector<float>{-5000.0f, -5000.0f}, {}), (Tokens{0, 1}));
}

TEST(Candidates, HugeLogitsAndTinyTemperaturesAreNotSpecial) {
  constexpr float kHuge = std::numeric_limits<float>::max();
  const std::vector<float> logits = {-kHuge, kHuge, 0.0f, kHuge};
  for (const float temperature : {1e-3f, 1e-30f, 1.0f, 10.0f}) {
    EXPECT_EQ(kept(logits, {.temperature = temperature}), (Tokens{1, 3}));
    EXPECT_EQ(kept(logits, {.temperature = temperature, .top_p = 0.5f}), (Tokens{1}));
    EXPECT_EQ(kept(logits, {.temperature = temperature, .typical_p = 0.6f}), (Tokens{1, 3}));
  }
}

TEST(SelectBest, TakesTheLargestInOrderOfToken) {
  std::mt19937 random(3);
  for (int i = 0; i < 300; ++i) {
    std::vector<float> logits = random_logits(random, 1 + random() % 3000);
    if (i % 10 == 0) std::sort(logits.begin(), logits.end());  // every token beats the ones before
    const int64_t count = static_cast<int64_t>(random() % 120);
    std::vector<Candidate> best;
    select_best(logits, count, best);
    std::vector<Choice> want;
    for (size_t token = 0; token < logits.size(); ++token) {
      if (std::isfinite(logits[token]))
        want.push_back({static_cast<int32_t>(token), logits[token]});
    }
    sort_best_first(want);
    if (std::ssize(want) > count) want.resize(static_cast<size_t>(count));
    Tokens want_tokens, tokens;
    for (const Choice& choice : want) want_tokens.push_back(choice.token);
    std::sort(want_tokens.begin(), want_tokens.end());
    for (const Candidate& candidate : best) tokens.push_back(candidate.token);
    ASSERT_EQ(tokens, want_tokens) << "case " << i;
  }
}

TEST(FindLargest, IsTheFirstOfEqualsAnywhereInARow) {
  for (const size_t vocab : {1, 15, 16, 17, 4095, 4096, 4097, 10000}) {
    std::vector<float> logits(vocab, -3.0f);
    EXPECT_EQ(find_largest(logits), 0);
    for (const size_t position : {vocab - 1, vocab / 2, vocab / 3}) {
      logits[position] = 4.0f;
      EXPECT_EQ(find_largest(logits), static_cast<int32_t>(position)) << vocab;
    }
  }
  EXPECT_EQ(find_largest(std::vector<float>(40, -kInfinity)), 0);
}

TEST(FindLargest, TellsNeighbouringNumbersApart) {
  std::mt19937 random(7);
  for (int i = 0; i < 500; ++i) {
    std::vector<float> logits(1 + random() % 6000);
    for (float& logit : logits) logit = 1.0f + static_cast<float>(random() % 5000) * 0x1p-23f;
    const auto want = std::max_element(logits.begin(), logits.end()) - logits.begin();
    ASSERT_EQ(find_largest(logits), want);
  }
}

}  // namespace
}  // namespace tessera::engine::testing
