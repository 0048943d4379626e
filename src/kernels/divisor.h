// Division by a number that is fixed at launch, as a multiplication: it turns the index of an item
// into a row and a column.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace tessera::kernels {

// For dividends below 2^31. With s = ceil(log2(value)) the multiplier is 2^(31 + s) / value rounded
// up, which exceeds the true ratio by less than value / 2^(31 + s) of one; times a dividend below
// 2^31 that is less than 1 / value, so the floor is exact.
struct Divisor {
  uint32_t value;
  uint32_t multiplier;
  uint32_t shift;
};

inline constexpr int64_t kMaxDividend = (int64_t{1} << 31) - 1;

// `value` from 1 to 2^31.
constexpr Divisor make_divisor(int64_t value) {
  uint32_t shift = 0;
  while ((int64_t{1} << shift) < value) ++shift;
  const uint64_t divisor = static_cast<uint64_t>(value);
  const uint64_t multiplier = ((uint64_t{1} << (31 + shift)) + divisor - 1) / divisor;
  return {static_cast<uint32_t>(value), static_cast<uint32_t>(multiplier), shift};
}

// Three instructions on the device: the doubled dividend makes the shift by 32 a high product.
constexpr uint32_t divide(uint32_t dividend, const Divisor& by) {
  const uint64_t product = static_cast<uint64_t>(dividend * 2) * by.multiplier;
  return static_cast<uint32_t>(product >> 32) >> by.shift;
}

struct QuotientRemainder {
  uint32_t quotient;
  uint32_t remainder;
};

constexpr QuotientRemainder divide_with_remainder(uint32_t dividend, const Divisor& by) {
  const uint32_t quotient = divide(dividend, by);
  return {quotient, dividend - quotient * by.value};
}

}  // namespace tessera::kernels
