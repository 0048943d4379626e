// The narrow floating-point formats straight from their definitions, as a model to test against:
// decoding in wide arithmetic, encoding by search. Slow, and shares no code with the library.
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "tessera/core/dtype.h"

namespace tessera::testing {

// How many bits each field has, and what lies beyond the largest finite value.
struct Layout {
  int exponent_bits;
  int mantissa_bits;
  int bias;
  bool has_infinity;  // the top exponent is reserved; without it only S.1111.111 is NaN
  bool saturates;     // overflow goes to the largest finite value, not to infinity

  uint32_t sign_bit() const { return 1u << (exponent_bits + mantissa_bits); }
  uint32_t infinity() const { return ((1u << exponent_bits) - 1) << mantissa_bits; }
  uint32_t canonical_nan() const { return sign_bit() - 1; }
  uint32_t largest_finite() const { return has_infinity ? infinity() - 1 : canonical_nan() - 1; }
  uint32_t num_patterns() const { return 2 * sign_bit(); }
};

template <class T>
inline constexpr Layout kLayout{};
template <>
inline constexpr Layout kLayout<F16>{5, 10, 15, true, false};
template <>
inline constexpr Layout kLayout<Bf16>{8, 7, 127, true, false};
template <>
inline constexpr Layout kLayout<E4m3>{4, 3, 7, false, true};
template <>
inline constexpr Layout kLayout<E5m2>{5, 2, 15, true, true};

inline double decode(const Layout& layout, uint32_t bits) {
  const uint32_t magnitude = bits & (layout.sign_bit() - 1);
  const double sign = (bits & layout.sign_bit()) != 0 ? -1.0 : 1.0;
  if (layout.has_infinity && magnitude == layout.infinity()) {
    return sign * std::numeric_limits<double>::infinity();
  }
  if (magnitude > layout.largest_finite()) return std::numeric_limits<double>::quiet_NaN();
  const int exponent = static_cast<int>(magnitude >> layout.mantissa_bits);
  const double fraction =
      std::ldexp(magnitude & ((1u << layout.mantissa_bits) - 1), -layout.mantissa_bits);
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - layout.bias);
  return sign * std::ldexp(1.0 + fraction, exponent - layout.bias);
}

// Encodes by looking through every finite magnitude for the nearest, ties to the even pattern.
class Encoder {
 public:
  explicit Encoder(const Layout& layout) : layout_(layout) {
    for (uint32_t bits = 0; bits <= layout.largest_finite(); ++bits) {
      values_.push_back(decode(layout, bits));
    }
    // The value that one more exponent would encode. In f16 and bf16 everything from half way to it
    // upwards overflows.
    const size_t last = values_.size() - 1;
    next_value_ = 2 * values_[last] - values_[last - 1];
  }

  // long double, because it holds every i64 as well as every float.
  uint32_t encode(long double value) const {
    if (std::isnan(value)) return layout_.canonical_nan();
    const uint32_t sign = std::signbit(value) ? layout_.sign_bit() : 0;
    return sign | encode_magnitude(std::fabs(value));
  }

 private:
  uint32_t encode_magnitude(long double value) const {
    const auto last = static_cast<uint32_t>(values_.size() - 1);
    if (value >= values_[last]) {
      const long double limit = (static_cast<long double>(values_[last]) + next_value_) / 2;
      return layout_.saturates || value < limit ? last : layout_.infinity();
    }
    const auto above = std::upper_bound(values_.begin(), values_.end(), value);
    const auto high = static_cast<uint32_t>(above - values_.begin());
    const uint32_t low = high - 1;
    const long double to_low = value - values_[low];
    const long double to_high = values_[high] - value;
    if (to_low != to_high) return to_low < to_high ? low : high;
    return low % 2 == 0 ? low : high;
  }

  Layout layout_;
  std::vector<double> values_;
  long double next_value_ = 0;
};

}  // namespace tessera::testing
