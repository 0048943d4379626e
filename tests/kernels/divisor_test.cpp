// Division by multiplication is exact over the whole range it promises.
// SPDX-License-Identifier: MIT
#include "kernels/divisor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>

namespace tessera::kernels {
namespace {

void expect_exact(uint32_t dividend, uint32_t value) {
  const Divisor by = make_divisor(value);
  const QuotientRemainder result = divide_with_remainder(dividend, by);
  ASSERT_EQ(result.quotient, dividend / value) << dividend << " / " << value;
  ASSERT_EQ(result.remainder, dividend % value) << dividend << " % " << value;
}

// Where the floor changes, and so where an inexact multiplier shows: next to multiples.
void expect_exact_near_multiples(uint32_t value) {
  const int64_t largest = kMaxDividend / value * value;
  for (const int64_t multiple :
       {int64_t{0}, int64_t{value}, largest / 2 / value * value, largest}) {
    for (const int64_t dividend : {multiple - 1, multiple, multiple + 1}) {
      expect_exact(static_cast<uint32_t>(std::clamp<int64_t>(dividend, 0, kMaxDividend)), value);
    }
  }
}

TEST(Divisor, IsExactForSmallDivisorsNextToMultiples) {
  for (uint32_t value = 1; value <= 100'000; ++value) expect_exact_near_multiples(value);
}

TEST(Divisor, IsExactForDivisorsNextToPowersOfTwo) {
  for (int bit = 2; bit < 31; ++bit) {
    for (const int offset : {-1, 0, 1}) {
      expect_exact_near_multiples((uint32_t{1} << bit) + static_cast<uint32_t>(offset));
    }
  }
  expect_exact_near_multiples(static_cast<uint32_t>(kMaxDividend));
}

TEST(Divisor, IsExactForRandomPairs) {
  std::mt19937 random(7);
  for (int i = 0; i < 1'000'000; ++i) {
    const uint32_t dividend = static_cast<uint32_t>(random() & kMaxDividend);
    const uint32_t value = std::max<uint32_t>(static_cast<uint32_t>(random()) >> (1 + i % 31), 1);
    expect_exact(dividend, value);
  }
}

}  // namespace
}  // namespace tessera::kernels
