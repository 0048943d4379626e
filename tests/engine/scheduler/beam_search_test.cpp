// Beam search over made-up distributions, against every continuation there is.
// SPDX-License-Identifier: MIT
#include "engine/beam_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "tests/engine/scheduler/tiny_model.h"

namespace tessera::engine {
namespace {

using tessera::testing::ids_of;

constexpr int32_t kVocab = 8;
constexpr int32_t kStop = 3;

// Logits that depend on the whole prefix.
std::vector<float> logits_after(const std::vector<int32_t>& prefix, uint64_t seed) {
  for (const int32_t token : prefix) seed = seed * 1000003 + static_cast<uint64_t>(token) + 1;
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0.0f, 2.0f);
  std::vector<float> logits(kVocab);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

struct Continuation {
  std::vector<int32_t> tokens;
  double score = 0.0;
};

// Every continuation that ends with a stop token or at the length, best first.
void enumerate(std::vector<int32_t>& prefix, double logprob, const BeamSettings& settings,
               uint64_t seed, std::vector<Continuation>& all) {
  const auto length = std::ssize(prefix);
  const bool is_ended = length > 0 && prefix.back() == kStop;
  if (is_ended || length == settings.max_new_tokens) {
    all.push_back(
        {prefix, logprob / std::pow(static_cast<double>(length), settings.length_penalty)});
    return;
  }
  const std::vector<float> logits = logits_after(prefix, seed);
  double total = 0.0;
  for (const float logit : logits) total += std::exp(static_cast<double>(logit));
  for (int32_t token = 0; token < kVocab; ++token) {
    if (token == kStop && length < settings.min_new_tokens) continue;
    prefix.push_back(token);
    const double logit = logits[static_cast<size_t>(token)];
    enumerate(prefix, logprob + logit - std::log(total), settings, seed, all);
    prefix.pop_back();
  }
}

std::vector<Continuation> all_continuations(const BeamSettings& settings, uint64_t seed) {
  std::vector<Continuation> all;
  std::vector<int32_t> prefix;
  enumerate(prefix, 0.0, settings, seed, all);
  std::ranges::stable_sort(all, [](const auto& a, const auto& b) { return a.score > b.score; });
  return all;
}

BeamSearch search(const BeamSettings& settings, uint64_t seed, int64_t* num_steps = nullptr) {
  BeamSearch search(settings);
  while (!search.is_done()) {
    std::vector<std::vector<BeamToken>> candidates;
    for (const Beam& beam : search.live()) {
      search.best_tokens(logits_after(ids_of(beam.tokens), seed), candidates.emplace_back());
    }
    search.advance(candidates);
    if (num_steps != nullptr) ++*num_steps;
  }
  return search;
}

TEST(BeamSearch, FindsTheBestOfAllWhenItIsWideEnough) {
  for (const double length_penalty : {1.0, 0.0, 2.0, -0.5}) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const BeamSettings settings{.width = kVocab * kVocab * kVocab,
                                  .num_results = 5,
                                  .length_penalty = length_penalty,
                                  .min_new_tokens = static_cast<int64_t>(seed % 3),
                                  .max_new_tokens = 4,
                                  .stop_tokens = {kStop}};
      const std::vector<Continuation> want = all_continuations(settings, seed);
      const BeamSearch found = search(settings, seed);
      ASSERT_EQ(found.results().size(), 5u);
      for (size_t i = 0; i < 5; ++i) {
        const FinishedBeam& result = found.results()[i];
        EXPECT_EQ(ids_of(result.beam.tokens), want[i].tokens) << "penalty " << length_penalty;
        EXPECT_NEAR(result.score, want[i].score, 1e-12);
        EXPECT_EQ(result.is_ended, want[i].tokens.back() == kStop);
      }
    }
  }
}

TEST(BeamSearch, OfWidthOneIsGreedy) {
  const BeamSettings settings{.width = 1, .max_new_tokens = 6};
  std::vector<int32_t> greedy;
  for (int i = 0; i < 6; ++i) {
    const std::vector<float> logits = logits_after(greedy, 9);
    greedy.push_back(static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin()));
  }
  EXPECT_EQ(ids_of(search(settings, 9).results()[0].beam.tokens), greedy);
}

TEST(BeamSearch, NeverFindsBetterThanTheBest) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const BeamSettings settings{.width = 3, .max_new_tokens = 4, .stop_tokens = {kStop}};
    const double best = all_continuations(settings, seed).front().score;
    EXPECT_LE(search(settings, seed).results()[0].score, best + 1e-12);
  }
}

TEST(BeamSearch, BreaksTiesByParentAndThenById) {
  BeamSearch search({.width = 3, .num_results = 3, .max_new_tokens = 2});
  search.advance(std::vector<std::vector<BeamToken>>{{{5, -1.0}, {2, -1.0}, {7, -1.0}}});
  ASSERT_EQ(search.live().size(), 3u);
  EXPECT_EQ(search.live()[0].tokens[0].token, 2);
  EXPECT_EQ(search.live()[1].tokens[0].token, 5);
  EXPECT_EQ(search.live()[2].tokens[0].token, 7);
  const std::vector<BeamToken> same = {{4, -1.0}, {1, -1.0}};
  search.advance(std::vector<std::vector<BeamToken>>{same, same, same});
  ASSERT_TRUE(search.is_done());
  EXPECT_EQ(ids_of(search.results()[0].beam.tokens), (std::vector<int32_t>{2, 1}));
  EXPECT_EQ(ids_of(search.results()[1].beam.tokens), (std::vector<int32_t>{2, 4}));
  EXPECT_EQ(ids_of(search.results()[2].beam.tokens), (std::vector<int32_t>{5, 1}));
}

TEST(BeamSearch, StopsAsSoonAsNothingCanBecomeBetter) {
  // The end of text is almost certain, so no continuation can win.
  BeamSearch search({.width = 2, .max_new_tokens = 100, .stop_tokens = {kStop}});
  const std::vector<std::vector<BeamToken>> candidates = {
      {{kStop, -1e-6}, {1, -20.0}, {2, -21.0}, {4, -22.0}}};
  EXPECT_TRUE(search.advance(candidates).empty());
  ASSERT_TRUE(search.is_done());
  EXPECT_EQ(ids_of(search.results()[0].beam.tokens), std::vector<int32_t>{kStop});
}

TEST(BeamSearch, FinishesOnlyBeamsAmongTheBest) {
  BeamSearch search({.width = 2, .num_results = 2, .max_new_tokens = 9, .stop_tokens = {kStop}});
  search.advance(std::vector<std::vector<BeamToken>>{{{0, -1.0}, {1, -2.0}}});
  // In order: the first beam's stop, its 5, the second beam's stop, the first beam's 6.
  search.advance(std::vector<std::vector<BeamToken>>{{{kStop, -1.5}, {5, -2.0}, {6, -4.0}},
                                                     {{kStop, -1.2}, {7, -6.0}}});
  ASSERT_EQ(search.results().size(), 1u) << "the other stop came third of two";
  EXPECT_EQ(ids_of(search.results()[0].beam.tokens), (std::vector<int32_t>{0, kStop}));
  ASSERT_EQ(search.live().size(), 2u);
  EXPECT_EQ(ids_of(search.live()[1].tokens), (std::vector<int32_t>{0, 6}));
}

TEST(BeamSearch, NamesTheParentsOfItsBeams) {
  BeamSearch search({.width = 2, .max_new_tokens = 5});
  search.advance(std::vector<std::vector<BeamToken>>{{{0, -1.0}, {1, -2.0}}});
  const auto parents = search.advance(
      std::vector<std::vector<BeamToken>>{{{0, -9.0}, {1, -9.5}}, {{2, -0.1}, {3, -0.2}}});
  ASSERT_EQ(parents.size(), 2u);
  EXPECT_EQ(parents[0], 1);
  EXPECT_EQ(parents[1], 1);
}

}  // namespace
}  // namespace tessera::engine
