// Philox 4x32-10 against its authors' known answers, and the uniform numbers made of it.
// SPDX-License-Identifier: MIT
#include "engine/sampling/philox.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "engine/sampling/sampler.h"

namespace tessera::engine {
namespace {

using Words = std::array<uint32_t, 4>;

TEST(Philox, MatchesThePublishedAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, BitsComeFromTheKeyAndTheWholeCounter) {
  EXPECT_EQ(random_bits(0, 0, 0), 0x6627e8d5u);
  EXPECT_EQ(random_bits(0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88), 0xd16cfe09u);
  const uint64_t high_bit = uint64_t{1} << 63;
  const std::set<uint32_t> values = {random_bits(0, 0, 0), random_bits(high_bit, 0, 0),
                                     random_bits(0, high_bit, 0), random_bits(0, 0, high_bit)};
  EXPECT_EQ(values.size(), 4u);
}

TEST(Philox, UniformIsTheFirstTwoWordsOfABlock) {
  const uint64_t bits = 0x6627e8d5e169c58d >> 12;
  EXPECT_EQ(random_uniform(0, 0, 0), (static_cast<double>(bits) + 0.5) / 0x1p52);
}

// Each of seed, sequence and position in turn runs through 64,000 values.
TEST(Philox, UniformFillsTheIntervalEvenly) {
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

TEST(Philox, SequencesOfOneSeedAreUnrelated) {
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
