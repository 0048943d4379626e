// The random words and uniform numbers that the sampler draws.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "engine/sampling/sample.h"

namespace tessera::engine {
namespace {

TEST(SamplerRandom, BitsComeFromTheKeyAndTheWholeCounter) {
  EXPECT_EQ(random_bits(0, 0, 0), 0x6627e8d5u);
  EXPECT_EQ(random_bits(0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88), 0xd16cfe09u);
  const uint64_t high_bit = uint64_t{1} << 63;
  const std::set<uint32_t> values = {random_bits(0, 0, 0), random_bits(high_bit, 0, 0),
                                     random_bits(0, high_bit, 0), random_bits(0, 0, high_bit)};
  EXPECT_EQ(values.size(), 4u);
}

TEST(SamplerRandom, UniformIsTheFirstTwoWordsOfABlock) {
  const uint64_t bits = 0x6627e8d5e169c58d >> 12;
  EXPECT_EQ(random_uniform(0, 0, 0), (static_cast<double>(bits) + 0.5) / 0x1p52);
}

// Each of seed, sequence and position in turn runs through 64,000 values.
TEST(SamplerRandom, UniformFillsTheIntervalEvenly) {
  constexpr int kCells = 64, kDraws = 64000;
  for (int axis = 0; axis < 3; ++axis) {
    std::vector<int> cells(kCells, 0);
    for (int i = 0; i < kDraws; ++i) {
      const double value = random_uniform(axis == 0 ? static_cast<uint64_t>(i) : 7,
                                          axis == 1 ? i : 0, axis == 2 ? i : 0);
      ASSERT_GT(value, 0.0);
      ASSERT_LT(value, 1.0);
      ++cells[static_cast<size_t>(value * kCells)];
    }
    double statistic = 0.0;
    for (const int count : cells) statistic += std::pow(count - 1000, 2) / 1000.0;
    // 63 degrees of freedom: 63 on average, 11 of standard deviation.
    EXPECT_LT(statistic, 63 + 5 * 11.3) << "axis " << axis;
    EXPECT_GT(statistic, 63 - 5 * 11.3) << "axis " << axis;
  }
}

TEST(SamplerRandom, SequencesOfOneSeedAreUnrelated) {
  double sum = 0.0;
  constexpr int kDraws = 100000;
  for (int i = 0; i < kDraws; ++i) {
    sum += (random_uniform(3, 0, i) - 0.5) * (random_uniform(3, 1, i) - 0.5);
  }
  // The product of two independent ones has variance 1/144.
  EXPECT_LT(std::fabs(sum), 5.0 * std::sqrt(kDraws / 144.0));
}

}  // namespace
}  // namespace tessera::engine
