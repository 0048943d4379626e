// What each filter of sampling keeps and how often tokens are drawn, against float64.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "cpu/sample.h"

namespace tessera {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();
using Tokens = std::vector<int32_t>;

struct Settings {
  float temperature = 1, typical_p = 1, top_p = 1, min_p = 0;
  int32_t top_k = 0;
  int64_t seed = 11;
};

template <class T>
TensorView view_of(std::vector<T>& values, DType type) {
  return TensorView::contiguous(values.data(), type, {static_cast<int64_t>(values.size())});
}

// How often each token is drawn at positions 0 to num_draws - 1: every row is the same memory.
std::vector<int> draws_of(std::vector<float> logits, const Settings& s, int num_draws) {
  const auto count = static_cast<size_t>(num_draws);
  const auto vocab = static_cast<int64_t>(logits.size());
  TensorView rows = TensorView::contiguous(logits.data(), DType::f32, {num_draws, vocab});
  rows.strides[0] = 0;
  std::vector<int32_t> tokens(count), top_k(count, s.top_k), positions(count);
  for (size_t i = 0; i < count; ++i) positions[i] = static_cast<int32_t>(i);
  std::vector<float> temperature(count, s.temperature), typical_p(count, s.typical_p),
      top_p(count, s.top_p), min_p(count, s.min_p);
  std::vector<int64_t> seeds(count, s.seed);
  cpu::sample({.logits = rows,
               .tokens = view_of(tokens, DType::i32),
               .temperature = view_of(temperature, DType::f32),
               .top_k = view_of(top_k, DType::i32),
               .typical_p = view_of(typical_p, DType::f32),
               .top_p = view_of(top_p, DType::f32),
               .min_p = view_of(min_p, DType::f32),
               .seeds = view_of(seeds, DType::i64),
               .positions = view_of(positions, DType::i32)});
  std::vector<int> counts(logits.size());
  for (const int32_t token : tokens) ++counts.at(static_cast<size_t>(token));
  return counts;
}

// The tokens drawn at least once in so many draws that one of probability 0.01 is left out with a
// probability of e^-40.
Tokens kept(const std::vector<float>& logits, const Settings& settings) {
  const std::vector<int> counts = draws_of(logits, settings, 4000);
  Tokens tokens;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] > 0) tokens.push_back(static_cast<int32_t>(i));
  }
  return tokens;
}

std::vector<float> logs(std::initializer_list<double> probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

TEST(SampleFilters, TopKKeepsTheFirstOfEquals) {
  const std::vector<float> logits = {1, 3, 2, 3, 2, 2};
  EXPECT_EQ(kept(logits, {.top_k = 1}), (Tokens{1}));
  EXPECT_EQ(kept(logits, {.top_k = 3}), (Tokens{1, 2, 3}));
  EXPECT_EQ(kept(logits, {.top_k = 4}), (Tokens{1, 2, 3, 4}));
  EXPECT_EQ(kept(logits, {.top_k = 6}), (Tokens{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(kept(logits, {.top_k = 1000}), (Tokens{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(kept(logits, {.top_k = -1}), (Tokens{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(kept(std::vector<float>(500, 1.5f), {.top_k = 3}), (Tokens{0, 1, 2}));
}

TEST(SampleFilters, TopPKeepsTheFewestThatReachIt) {
  const std::vector<float> equal(8, 0.25f);  // probabilities of exactly one eighth
  EXPECT_EQ(kept(equal, {.top_p = 0.25f}), (Tokens{0, 1}));
  EXPECT_EQ(kept(equal, {.top_p = 0.2500001f}), (Tokens{0, 1, 2}));
  EXPECT_EQ(kept(equal, {.top_p = 0.0f}), (Tokens{0}));
  EXPECT_EQ(kept(equal, {.top_p = std::numeric_limits<float>::quiet_NaN()}), (Tokens{0}));
  const std::vector<float> logits = logs({0.1, 0.5, 0.1, 0.3});
  EXPECT_EQ(kept(logits, {.top_p = 0.4f}), (Tokens{1}));
  EXPECT_EQ(kept(logits, {.top_p = 0.7f}), (Tokens{1, 3}));
  EXPECT_EQ(kept(logits, {.top_p = 0.85f}), (Tokens{0, 1, 3}));
  EXPECT_EQ(kept(logits, {.top_p = 0.95f}), (Tokens{0, 1, 2, 3}));
}

TEST(SampleFilters, TopPSeesWhatTopKHasLeft) {
  const std::vector<float> logits = logs({0.4, 0.3, 0.2, 0.1});
  EXPECT_EQ(kept(logits, {.top_p = 0.5f}), (Tokens{0, 1}));
  EXPECT_EQ(kept(logits, {.top_p = 0.5f, .top_k = 2}), (Tokens{0})) << "4/7 is enough";
}

TEST(SampleFilters, MinPIsMeasuredAgainstTheBest) {
  const std::vector<float> logits = logs({0.1, 0.5, 0.04, 0.36});
  EXPECT_EQ(kept(logits, {.min_p = 0.19f}), (Tokens{0, 1, 3}));
  EXPECT_EQ(kept(logits, {.min_p = 0.21f}), (Tokens{1, 3}));
  EXPECT_EQ(kept(logits, {.min_p = 1.0f}), (Tokens{1}));
}

TEST(SampleFilters, TypicalMayLeaveOutTheMostProbable) {
  // Entropy 1.36 nats: tokens of probability 0.2 are the nearest to it, the best one is not.
  const std::vector<float> logits = logs({0.45, 0.2, 0.2, 0.1, 0.05});
  EXPECT_EQ(kept(logits, {.typical_p = 0.3f}), (Tokens{1, 2}));
  EXPECT_EQ(kept(logits, {.typical_p = 0.1f}), (Tokens{1}));
  EXPECT_EQ(kept(logits, {.typical_p = 0.3f, .min_p = 1.0f}), (Tokens{1, 2}));
}

TEST(SampleFilters, ExtremesHaveOneAnswer) {
  std::vector<float> lonely(500, kNever);
  lonely[123] = -4.0f;
  EXPECT_EQ(kept(lonely, {}), (Tokens{123}));
  EXPECT_EQ(kept(lonely, {.typical_p = 0.5f, .top_p = 0.5f, .top_k = 5}), (Tokens{123}));
  const std::vector<float> logits = {1, 2, 4, 3};
  EXPECT_EQ(kept(logits, {.temperature = 1e-3f}), (Tokens{2}));
  EXPECT_EQ(kept(logits, {.temperature = 1e-38f}), (Tokens{2}));
  EXPECT_EQ(kept(logits, {.temperature = -1.0f}), (Tokens{2}));
  EXPECT_EQ(kept(logits, {.temperature = std::numeric_limits<float>::quiet_NaN()}), (Tokens{2}));
  EXPECT_EQ(kept(logits, {.temperature = 1e30f}), (Tokens{0, 1, 2, 3}));
  EXPECT_EQ(kept({3e38f, -3e38f, 3e38f}, {}), (Tokens{0, 2}));
}

// --- the same by brute force in float64 ------------------------------------------------------

struct Choice {
  int32_t token;
  float logit;
  double weight;
};

double total_of(const std::vector<Choice>& choices) {
  double total = 0;
  for (const Choice& choice : choices) total += choice.weight;
  return total;
}

// The fewest from the front that reach `share`. Says whether the last of them is beyond doubt: the
// operation's weights have relative errors of 2^-20 or so.
bool cut_at(std::vector<Choice>& choices, double share) {
  const double target = share * total_of(choices);
  double reached = 0;
  size_t count = 0;
  bool is_clear = true;
  while (count < choices.size() && (count == 0 || reached < target)) {
    reached += choices[count++].weight;
    is_clear = is_clear && std::fabs(reached - target) > 1e-5 * target;
  }
  choices.resize(count);
  return is_clear;
}

// What may be drawn. False: too close to call in float64 and in the operation's integers.
bool filter(const std::vector<float>& logits, const Settings& s, std::vector<Choice>& left) {
  const double largest = *std::ranges::max_element(logits);
  left.clear();
  for (size_t i = 0; i < logits.size(); ++i) {
    const double weight = std::exp((logits[i] - largest) / s.temperature);
    if (logits[i] > kNever) left.push_back({static_cast<int32_t>(i), logits[i], weight});
  }
  const auto best_first = [](const Choice& a, const Choice& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
  };
  bool is_clear = true;
  std::ranges::sort(left, best_first);
  if (s.top_k > 0) left.resize(std::min(left.size(), static_cast<size_t>(s.top_k)));
  if (s.typical_p < 1) {
    double mean = 0;
    for (const Choice& c : left) mean += c.weight * std::log(c.weight) / total_of(left);
    const auto distance = [&](const Choice& c) { return std::fabs(std::log(c.weight) - mean); };
    std::ranges::sort(left, [&](const Choice& a, const Choice& b) {
      return a.logit == b.logit ? a.token < b.token : distance(a) < distance(b);
    });
    for (size_t i = 1; i < left.size(); ++i) {  // 2^-18 bits are a step of the operation
      const bool are_equal = left[i].logit == left[i - 1].logit;
      is_clear = is_clear && (are_equal || distance(left[i]) - distance(left[i - 1]) > 1e-4);
    }
    is_clear = cut_at(left, s.typical_p) && is_clear;
    std::ranges::sort(left, best_first);
  }
  if (s.top_p < 1) is_clear = cut_at(left, s.top_p) && is_clear;
  const double least = s.min_p * left.front().weight;
  for (const Choice& c : left) is_clear = is_clear && std::fabs(c.weight - least) > 1e-5 * least;
  std::erase_if(left, [&](const Choice& c) { return c.weight < least; });
  return is_clear;
}

// Pearson's statistic stays near the number of degrees of freedom; tokens that are expected less
// than 8 times are counted as one.
void expect_drawn_as_expected(const std::vector<int>& counts, const std::vector<Choice>& left,
                              int num_draws) {
  double statistic = 0, few_expected = 0;
  int few_counted = 0, num_drawn = 0, num_terms = 0;
  const auto add = [&](double expected, int counted) {
    statistic += (counted - expected) * (counted - expected) / expected;
    ++num_terms;
  };
  for (const Choice& choice : left) {
    const double expected = choice.weight / total_of(left) * num_draws;
    const int counted = counts[static_cast<size_t>(choice.token)];
    num_drawn += counted;
    if (expected < 8) {
      few_expected += expected;
      few_counted += counted;
    } else {
      add(expected, counted);
    }
  }
  if (few_expected >= 8) add(few_expected, few_counted);
  EXPECT_EQ(num_drawn, num_draws) << "a token was drawn that had been dropped";
  const double freedom = std::max(num_terms - 1, 1);
  EXPECT_LT(statistic, freedom + 6.0 * std::sqrt(2.0 * freedom));
}

TEST(SampleFilters, DrawWhatFloat64KeepsAsOftenAsItSays) {
  std::mt19937_64 random(3);
  const auto any = [&](std::initializer_list<double> choices) {
    return static_cast<float>(*(choices.begin() + random() % choices.size()));
  };
  int num_clear = 0;
  for (int trial = 0; trial < 300; ++trial) {
    std::normal_distribution<float> normal(0, any({0.3, 1, 3}));
    std::vector<float> logits(static_cast<size_t>(any({2, 5, 30, 600})));
    for (float& logit : logits) logit = random() % 9 == 0 ? kNever : normal(random);
    logits[0] = 1;
    const Settings settings{.temperature = any({0.5, 1, 2}),
                            .typical_p = any({1, 1, 1, 0.3, 0.9}),
                            .top_p = any({1, 1, 0.2, 0.6, 0.95}),
                            .min_p = any({0, 0, 0.02, 0.4}),
                            .top_k = static_cast<int32_t>(any({0, 0, 3, 20})),
                            .seed = static_cast<int64_t>(random())};
    SCOPED_TRACE(::testing::Message()
                 << "trial " << trial << ": " << logits.size() << " logits, temperature "
                 << settings.temperature << ", top_k " << settings.top_k << ", typical_p "
                 << settings.typical_p << ", top_p " << settings.top_p << ", min_p "
                 << settings.min_p);
    std::vector<Choice> left;
    if (!filter(logits, settings, left)) continue;
    ++num_clear;
    constexpr int kDraws = 3000;
    expect_drawn_as_expected(draws_of(logits, settings, kDraws), left, kDraws);
  }
  EXPECT_GT(num_clear, 200);
}

TEST(SampleFilters, ADrawDependsOnSeedSequenceAndPositionAlone) {
  const std::vector<float> logits(1000, 0.5f);
  EXPECT_EQ(draws_of(logits, {.seed = 5}, 500), draws_of(logits, {.seed = 5}, 500));
  EXPECT_NE(draws_of(logits, {.seed = 5}, 500), draws_of(logits, {.seed = 6}, 500));
  EXPECT_NE(draws_of(logits, {.seed = 5}, 500), draws_of(logits, {.seed = 5 + (1LL << 32)}, 500));
}

TEST(SampleFilters, PaddingOfTheVocabularyChangesNothing) {
  std::mt19937 random(4);
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> logits(97);
  for (float& logit : logits) logit = normal(random);
  std::vector<float> padded = logits;
  padded.resize(128, kNever);
  for (const Settings& s : {Settings{}, Settings{.typical_p = 0.8f, .top_p = 0.9f},
                            Settings{.min_p = 0.1f, .top_k = 40}}) {
    std::vector<int> want = draws_of(logits, s, 300);
    want.resize(padded.size());
    EXPECT_EQ(draws_of(padded, s, 300), want);
  }
}

}  // namespace
}  // namespace tessera
