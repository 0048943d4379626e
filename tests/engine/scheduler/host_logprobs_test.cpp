// Log-probabilities of a row on the host.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "engine/logprobs.h"
#include "tests/core/message_of.h"

namespace tessera::engine::testing {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> random_logits(std::mt19937& random, size_t count) {
  std::normal_distribution<float> normal(0.0f, 3.0f);
  std::vector<float> logits(count);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

TEST(LogSumExp, IsRightForRandomRows) {
  std::mt19937 random(4);
  for (int i = 0; i < 200; ++i) {
    const std::vector<float> logits = random_logits(random, 1 + random() % 2000);
    const float largest = *std::max_element(logits.begin(), logits.end());
    long double sum = 0.0L;
    for (const float logit : logits) sum += std::exp(static_cast<long double>(logit) - largest);
    const double want = static_cast<double>(largest + std::log(sum));
    EXPECT_NEAR(log_sum_exp(logits), want, 1e-12 * (1.0 + std::fabs(want)));
  }
}

TEST(LogSumExp, NeitherOverflowsNorUnderflows) {
  EXPECT_NEAR(log_sum_exp(std::vector<float>{3e38f, 3e38f}), 3e38f, 1.0e23);
  EXPECT_DOUBLE_EQ(log_sum_exp(std::vector<float>{-2000.0f, -2000.0f}), -2000.0 + std::log(2.0));
  EXPECT_DOUBLE_EQ(log_sum_exp(std::vector<float>{-kInfinity, 5.0f}), 5.0);
  EXPECT_EQ(log_sum_exp(std::vector<float>{-kInfinity, -kInfinity}), -kInfinity);
}

TEST(HostLogprobs, ListTheMostProbableBestFirstAndTheSmallerOfEquals) {
  const std::vector<float> logits = {1, 3, 2, 3, -kInfinity};
  const OutputToken output = logprobs_of(logits, 2, 3);
  const double log_total = std::log(std::exp(1.0) + 2.0 * std::exp(3.0) + std::exp(2.0));
  EXPECT_EQ(output.token, 2);
  EXPECT_FLOAT_EQ(output.logprob, static_cast<float>(2.0 - log_total));
  ASSERT_EQ(output.top.size(), 3u);
  EXPECT_EQ(output.top[0].token, 1);
  EXPECT_EQ(output.top[1].token, 3);
  EXPECT_EQ(output.top[2].token, 2);
  EXPECT_FLOAT_EQ(output.top[0].logprob, static_cast<float>(3.0 - log_total));
  EXPECT_EQ(output.top[2].logprob, output.logprob);
}

TEST(HostLogprobs, AreFewerWhereFewerTokensArePossible) {
  const std::vector<float> logits = {1, -kInfinity, 0};
  EXPECT_TRUE(logprobs_of(logits, 0, 0).top.empty());
  EXPECT_EQ(logprobs_of(logits, 0, 3).top.size(), 2u);
  EXPECT_EQ(logprobs_of(logits, 0, 100).top.size(), 2u);
  EXPECT_EQ(logprobs_of(logits, 1, 1).logprob, -kInfinity);
  EXPECT_EQ(logprobs_of(std::vector<float>{-kInfinity}, 0, 1).logprob, -kInfinity);
}

TEST(HostLogprobs, AgreeWithSortingEverything) {
  std::mt19937 random(14);
  const std::vector<float> logits = random_logits(random, 50000);
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::ranges::stable_sort(ids, [&](int32_t a, int32_t b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  const double total = log_sum_exp(logits);
  const OutputToken output = logprobs_of(logits, ids[7], 20);
  EXPECT_EQ(output.logprob, output.top[7].logprob);
  for (size_t i = 0; i < 20; ++i) {
    EXPECT_EQ(output.top[i].token, ids[i]);
    EXPECT_NEAR(output.top[i].logprob, logits[static_cast<size_t>(ids[i])] - total, 1e-5);
  }
}

TEST(HostLogprobs, RefuseATokenOutsideTheRow) {
  const std::vector<float> logits = {1, 2};
  const auto message_for = [&](int32_t token) {
    return tessera::testing::message_of([&] { logprobs_of(logits, token, 1); });
  };
  EXPECT_NE(message_for(2).find("token 2 is outside a row of 2 logits"), std::string::npos);
  EXPECT_NE(message_for(-1), "");
}

}  // namespace
}  // namespace tessera::engine::testing
