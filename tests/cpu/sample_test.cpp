// The CPU's sampler against a plain one that sorts everything, and against probabilities.
// SPDX-License-Identifier: MIT
#include "cpu/sample.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <vector>

#include "core/sampling_math.h"
#include "cpu/sample_weights.h"

namespace tessera {
namespace {

using namespace sampling;

constexpr float kNever = -std::numeric_limits<float>::infinity();

template <class T>
TensorView view_of(std::vector<T>& values, DType type) {
  return TensorView::contiguous(values.data(), type, {static_cast<int64_t>(values.size())});
}

struct Settings {
  float temperature = 1, typical_p = 1, top_p = 1, min_p = 0;
  int32_t top_k = 0;
  int64_t seed = 0;
  int32_t sequence = 0, position = 0;
};

int32_t draw(std::vector<float> logits, Settings s) {
  std::vector<int32_t> token(1, 99), top_k{s.top_k}, sequence{s.sequence}, position{s.position};
  std::vector<float> temperature{s.temperature}, typical_p{s.typical_p}, top_p{s.top_p},
      min_p{s.min_p};
  std::vector<int64_t> seed{s.seed};
  cpu::sample({.logits = TensorView::contiguous(logits.data(), DType::f32,
                                                {1, static_cast<int64_t>(logits.size())}),
               .tokens = view_of(token, DType::i32),
               .temperature = view_of(temperature, DType::f32),
               .top_k = view_of(top_k, DType::i32),
               .typical_p = view_of(typical_p, DType::f32),
               .top_p = view_of(top_p, DType::f32),
               .min_p = view_of(min_p, DType::f32),
               .seeds = view_of(seed, DType::i64),
               .sequences = view_of(sequence, DType::i32),
               .positions = view_of(position, DType::i32)});
  return token[0];
}

// The definition, word for word: everything is sorted, nothing is clever.
int32_t draw_plainly(const std::vector<float>& logits, const Settings& s) {
  struct Token {
    int32_t token;
    float logit, y;
    uint64_t weight;
  };
  const float largest = *std::ranges::max_element(logits);
  std::vector<Token> kept;
  for (size_t i = 0; i < logits.size(); ++i) {
    const float y = (logits[i] - largest) * log2_scale(s.temperature);
    kept.push_back({static_cast<int32_t>(i), logits[i], y, weight_of(y, cpu::SampleMath())});
  }
  const auto total = [&] {
    uint64_t sum = 0;
    for (const Token& t : kept) sum += t.weight;
    return sum;
  };
  const auto keep_share = [&](float share) {  // of what is sorted by preference
    const uint64_t target = share_of(total(), share);
    uint64_t reached = 0;
    size_t count = 0;
    while (reached < target) reached += kept[count++].weight;
    kept.resize(count);
  };
  std::ranges::stable_sort(kept, std::greater<>(), &Token::logit);
  if (s.top_k > 0) kept.resize(std::min(kept.size(), static_cast<size_t>(s.top_k)));
  std::erase_if(kept, [](const Token& t) { return t.weight == 0; });
  if (s.typical_p < 1) {
    int64_t sum = 0, coarse = 0;
    for (const Token& t : kept) {
      coarse += coarse_weight(t.weight);
      sum += coarse_weight(t.weight) * surprise_of(t.y);
    }
    std::ranges::sort(kept, {}, &Token::token);
    std::ranges::stable_sort(
        kept, {}, [&](const Token& t) { return std::abs(surprise_of(t.y) - sum / coarse); });
    keep_share(s.typical_p);
    std::ranges::sort(kept, {}, &Token::token);
    std::ranges::stable_sort(kept, std::greater<>(), &Token::logit);
  }
  if (s.top_p < 1) keep_share(s.top_p);
  if (s.min_p > 0) {
    const uint64_t least = share_of(std::ranges::max(kept, {}, &Token::weight).weight, s.min_p);
    std::erase_if(kept, [&](const Token& t) { return t.weight < least; });
  }
  std::ranges::sort(kept, {}, &Token::token);
  __extension__ using Wide = unsigned __int128;
  const uint64_t random = random_bits(static_cast<uint64_t>(s.seed), s.sequence, s.position);
  const auto skipped = static_cast<uint64_t>(Wide{random} * total() >> 64);
  uint64_t reached = 0;
  for (const Token& t : kept) {
    reached += t.weight;
    if (reached > skipped) return t.token;
  }
  return -100;
}

TEST(Sample, ChoosesWhatSortingEverythingChooses) {
  std::mt19937_64 random(7);
  const auto any = [&](std::initializer_list<double> choices) {
    return *(choices.begin() + random() % choices.size());
  };
  std::map<int32_t, int> seen;
  for (int trial = 0; trial < 4000; ++trial) {
    const auto vocab = static_cast<size_t>(any({1, 2, 3, 17, 100, 700, 3000}));
    const bool is_coarse = random() % 3 == 0;
    std::normal_distribution<float> normal(0, static_cast<float>(any({0.01, 1, 1, 5})));
    std::vector<float> logits(vocab);
    for (float& logit : logits) logit = is_coarse ? std::round(normal(random)) : normal(random);
    for (float& logit : logits) logit = random() % 20 == 0 ? kNever : logit;
    logits[random() % vocab] = 1;  // one at least
    const Settings settings{.temperature = static_cast<float>(any({1e-4, 0.2, 0.7, 1, 1, 3})),
                            .typical_p = static_cast<float>(any({1, 1, 1, 0.05, 0.5, 0.95})),
                            .top_p = static_cast<float>(any({1, 1e-6, 0.3, 0.9, 0.99, 1})),
                            .min_p = static_cast<float>(any({0, 0, 0.05, 0.5, 1})),
                            .top_k = static_cast<int32_t>(any({0, 0, 1, 2, 40, 500, 5000})),
                            .seed = static_cast<int64_t>(random()),
                            .sequence = static_cast<int32_t>(random() % 4),
                            .position = static_cast<int32_t>(random() % 1000)};
    const int32_t want = draw_plainly(logits, settings);
    ASSERT_EQ(draw(logits, settings), want) << "trial " << trial;
    ++seen[want];
  }
  EXPECT_GT(seen.size(), 300u);  // the draws differ, so that equality means something
}

TEST(Sample, DrawsTokensAsOftenAsTheirProbability) {
  const std::vector<float> logits = {0.0f, 1.0f, -1.0f, 2.0f, kNever, 0.5f};
  double total = 0;
  for (const float logit : logits) total += std::exp(double{logit} / 0.8);
  constexpr int kDraws = 40000;
  std::vector<int> counts(logits.size());
  for (int i = 0; i < kDraws; ++i) {
    ++counts[static_cast<size_t>(draw(logits, {.temperature = 0.8f, .seed = 3, .position = i}))];
  }
  for (size_t i = 0; i < logits.size(); ++i) {
    const double p = std::exp(double{logits[i]} / 0.8) / total;
    const double sigma = std::sqrt(p * (1 - p) * kDraws);
    EXPECT_NEAR(counts[i], p * kDraws, 4.5 * sigma) << "token " << i;
  }
}

TEST(Sample, WeightsAreExponentialsAndTheSameOnEveryInstructionSet) {
  std::vector<float> logits;
  for (float x = 0; x > -32; x -= 0.0137f) logits.push_back(x);
  logits.push_back(kNever);
  std::vector<float> y(logits.size());
  std::vector<uint64_t> first;
  for (const cpu::SimdLevel level : cpu::simd_levels()) {
    std::vector<uint64_t> weights(logits.size());
    cpu::sample_weights_builds().at(level)(
        {logits.data(), std::ssize(logits), 0.0f, log2_scale(1.0f), y.data(), weights.data()});
    if (first.empty()) first = weights;
    EXPECT_EQ(weights, first) << name(level);
  }
  for (size_t i = 0; i + 1 < logits.size(); ++i) {
    const double exact = std::exp(double{logits[i]}) * static_cast<double>(kOne);
    // The logarithm is rounded to a float, the weight down to a whole number.
    const double bound = exact * (0x1p-22 + 0x1p-23 * std::fabs(double{logits[i]})) + 1;
    EXPECT_NEAR(static_cast<double>(first[i]), exact, bound) << logits[i];
  }
  EXPECT_EQ(first.front(), kOne);
  EXPECT_EQ(first.back(), 0u);
}

TEST(Sample, TellsRowsThatHaveNoAnswer) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(draw({0, std::numeric_limits<float>::quiet_NaN(), 1}, {}), kSampleBroken);
  EXPECT_EQ(draw({0, infinity, 1}, {.temperature = 0}), kSampleBroken);
  EXPECT_EQ(draw({kNever, kNever}, {}), kSampleNothing);
  EXPECT_EQ(draw({kNever, kNever}, {.temperature = 0}), kSampleNothing);
  EXPECT_EQ(draw({kNever, -3.0f, kNever}, {.temperature = 0.01f, .top_k = 2}), 1);
}

// A row of five logits with biases and a list of tokens seen.
struct EditedRow {
  std::vector<float> logits = {2.0f, 1.0f, 0.5f, -1.0f, 0.0f};
  std::vector<int32_t> token = {99}, bias_starts = {0, 0}, bias_tokens = {}, slots = {1};
  std::vector<float> bias_values = {}, temperature = {0}, repetition = {1}, presence = {0},
                     frequency = {0};
  std::vector<int32_t> seen_tokens = std::vector<int32_t>(6, -1);  // of two slots
  std::vector<int32_t> seen_counts = std::vector<int32_t>(6, 0);
  std::vector<int32_t> num_seen = {0, 0};

  void add_bias(int32_t token_, float value) {
    bias_tokens.push_back(token_);
    bias_values.push_back(value);
    ++bias_starts[1];
  }
  void add_seen(int32_t token_, int32_t count) {
    const auto at = static_cast<size_t>(3 + num_seen[1]++);
    seen_tokens[at] = token_;
    seen_counts[at] = count;
  }
  int32_t draw() {
    cpu::sample({.logits = TensorView::contiguous(logits.data(), DType::f32, {1, 5}),
                 .tokens = view_of(token, DType::i32),
                 .temperature = view_of(temperature, DType::f32),
                 .bias_starts = view_of(bias_starts, DType::i32),
                 .bias_tokens = view_of(bias_tokens, DType::i32),
                 .bias_values = view_of(bias_values, DType::f32),
                 .slots = view_of(slots, DType::i32),
                 .seen_tokens = TensorView::contiguous(seen_tokens.data(), DType::i32, {2, 3}),
                 .seen_counts = TensorView::contiguous(seen_counts.data(), DType::i32, {2, 3}),
                 .num_seen = view_of(num_seen, DType::i32),
                 .repetition = view_of(repetition, DType::f32),
                 .presence = view_of(presence, DType::f32),
                 .frequency = view_of(frequency, DType::f32)});
    return token[0];
  }
  // What a logit becomes: a second token with a bias shows it by comparison.
  float edited(int32_t which) {
    float low = -1e4f, high = 1e4f;
    const int32_t rival = which == 4 ? 2 : 4;  // which has no bias and was not seen
    for (int step = 0; step < 60; ++step) {
      EditedRow row = *this;
      const float middle = low / 2 + high / 2;
      for (int32_t i = 0; i < 5; ++i) {
        if (i != which) row.logits[static_cast<size_t>(i)] = i == rival ? middle : kNever;
      }
      (row.draw() == which ? low : high) = middle;
    }
    return low;
  }
};

TEST(Sample, AppliesBiasesThenPenalties) {
  EditedRow row;
  row.repetition = {2};
  row.presence = {0.5f};
  row.frequency = {0.25f};
  row.add_bias(0, kNever);
  row.add_bias(3, 4.0f);
  row.add_seen(3, 2);          // generated twice: (-1 + 4) / 2 - 0.5 - 2 * 0.25 = 0.5
  row.add_seen(1, kInPrompt);  // in the prompt only: 1 / 2
  EXPECT_NEAR(row.edited(3), 0.5f, 1e-5);
  EXPECT_NEAR(row.edited(1), 0.5f, 1e-5);
  EXPECT_NEAR(row.edited(2), 0.5f, 1e-5);
  EXPECT_EQ(row.draw(), 1);                   // the first of three equals; token 0 is banned
  EXPECT_EQ(row.logits, EditedRow().logits);  // the row itself is unchanged
}

TEST(Sample, PenalisesNegativeLogitsByMultiplication) {
  EditedRow row;
  row.repetition = {3};
  row.add_seen(3, 1);
  EXPECT_NEAR(row.edited(3), -3.0f, 1e-5);
  row.seen_counts[3] = kInPrompt + 7;
  EXPECT_NEAR(row.edited(3), -3.0f, 1e-5);  // once, however often it was seen
}

TEST(Sample, ClampsBiasesAndIgnoresWhatIsOutOfRange) {
  EditedRow row;
  row.add_bias(1, 1e6f);
  row.add_bias(2, -1e6f);
  row.add_bias(77, 5.0f);
  row.add_bias(-1, 5.0f);
  row.add_seen(-3, 1);
  row.add_seen(5, 1);
  row.repetition = {2};
  EXPECT_NEAR(row.edited(1), 101.0f, 1e-4);
  EXPECT_NEAR(row.edited(2), -99.5f, 1e-4);
  EXPECT_EQ(row.edited(0), EditedRow().edited(0));
  for (const int32_t slot : {-1, 2, 1 << 30}) {
    row.slots = {slot};
    EXPECT_EQ(row.draw(), 1) << slot;
  }
}

TEST(Sample, KeepsExtremeLogitsFinite) {
  EditedRow row;
  row.logits = {3e38f, -3e38f, kNever, 0.0f, 1.0f};
  row.repetition = {0.1f};
  row.add_seen(0, 1);
  row.add_seen(1, 1);
  row.add_seen(2, 1);
  EXPECT_EQ(row.draw(), 0);  // 3e39 would be infinite, and the row broken
  row.add_bias(2, 50.0f);
  row.logits = {kNever, kNever, kNever, kNever, kNever};
  EXPECT_EQ(row.draw(), kSampleNothing);  // a bias does not revive a token
}

TEST(Sample, CountsWhatItDraws) {
  EditedRow row;
  row.add_seen(4, kInPrompt);
  row.add_seen(0, 5);
  EXPECT_EQ(row.draw(), 0);
  EXPECT_EQ(row.seen_counts, (std::vector<int32_t>{0, 0, 0, kInPrompt, 6, 0}));
  row.add_bias(1, 3.0f);
  EXPECT_EQ(row.draw(), 1);  // new: appended
  EXPECT_EQ(row.num_seen, (std::vector<int32_t>{0, 3}));
  EXPECT_EQ(row.seen_tokens, (std::vector<int32_t>{-1, -1, -1, 4, 0, 1}));
  EXPECT_EQ(row.seen_counts, (std::vector<int32_t>{0, 0, 0, kInPrompt, 6, 1}));
  row.add_bias(2, 9.0f);
  EXPECT_EQ(row.draw(), 2);  // no room
  EXPECT_EQ(row.num_seen, (std::vector<int32_t>{0, 3}));
  row.logits[0] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(row.draw(), kSampleBroken);  // nothing was drawn
  EXPECT_EQ(row.seen_counts, (std::vector<int32_t>{0, 0, 0, kInPrompt, 6, 1}));
}

// An edit must not hide that the model's logits are broken.
TEST(Sample, SeesBrokenLogitsBehindABan) {
  EditedRow row;
  row.logits[2] = std::numeric_limits<float>::quiet_NaN();
  row.add_bias(2, kNever);
  EXPECT_EQ(row.draw(), kSampleBroken);
}

TEST(TokenLogprobs, AreThoseOfTheSoftmax) {
  std::vector<float> logits = {0.0f, 3.0f, 3.0f, -2.0f, kNever, 1.0f};
  double total = 0;
  for (const float logit : logits) total += std::exp(double{logit});
  std::vector<int32_t> token{3}, top_tokens(6);
  std::vector<float> logprob(1), top(6);
  cpu::token_logprobs({.logits = TensorView::contiguous(logits.data(), DType::f32, {1, 6}),
                       .tokens = view_of(token, DType::i32),
                       .logprobs = view_of(logprob, DType::f32),
                       .top_tokens = TensorView::contiguous(top_tokens.data(), DType::i32, {1, 6}),
                       .top_logprobs = TensorView::contiguous(top.data(), DType::f32, {1, 6})});
  EXPECT_NEAR(logprob[0], -2.0 - std::log(total), 1e-6);
  EXPECT_EQ(top_tokens, (std::vector<int32_t>{1, 2, 5, 0, 3, -1}));
  EXPECT_NEAR(top[2], 1.0 - std::log(total), 1e-6);
  EXPECT_TRUE(std::isnan(top[5]));
}

// The bound of TokenLogprobsArgs: products and the polynomial err by 2^-23 of |ln p| and of the
// weight, and a million weights lose less than one unit of 2^-40 each.
TEST(TokenLogprobs, KeepTheirBoundInLargeVocabularies) {
  std::mt19937 random(8);
  for (const size_t vocab : {size_t{128256}, size_t{1} << 20}) {
    for (const float spread : {0.1f, 2.0f, 8.0f}) {
      std::normal_distribution<float> normal(3, spread);
      std::vector<float> logits(vocab), logprob(1);
      for (float& logit : logits) logit = normal(random);
      double total = 0;
      for (const float logit : logits) total += std::exp(double{logit});
      for (const int32_t which : {0, 77777}) {
        std::vector<int32_t> token{which};
        const auto width = static_cast<int64_t>(vocab);
        cpu::token_logprobs(
            {.logits = TensorView::contiguous(logits.data(), DType::f32, {1, width}),
             .tokens = view_of(token, DType::i32),
             .logprobs = view_of(logprob, DType::f32)});
        const double want = double{logits[static_cast<size_t>(which)]} - std::log(total);
        EXPECT_NEAR(logprob[0], want, 0x1p-22 * (16 + std::fabs(want))) << vocab << " " << spread;
      }
    }
  }
}

}  // namespace
}  // namespace tessera
