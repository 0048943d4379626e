// Conversions between element types on the host, correctly rounded.
// SPDX-License-Identifier: MIT
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "tessera/core/dtype.h"
#include "tessera/core/tensor.h"

namespace tessera {

// The scalar conversions are inline and branch-free because the loops of src/cpu use them and must
// vectorise.
namespace detail {

inline constexpr uint32_t kSignBit = 0x80000000u;
inline constexpr uint32_t kInfinityBits = 0x7f800000u;

// The bits of 2^exponent as a float; for normal results only.
constexpr uint32_t bits_of_power(int exponent) {
  return static_cast<uint32_t>(exponent + 127) << 23;
}

// condition ? yes : no, by mask. A ternary would let the compiler move the floating-point work of
// one arm under a branch, which keeps GCC from vectorising the loop around it.
constexpr uint32_t select(bool condition, uint32_t yes, uint32_t no) {
  const uint32_t mask = 0u - static_cast<uint32_t>(condition);
  return (yes & mask) | (no & ~mask);
}

// From the bits of a finite magnitude in a narrower format to those of the float. A subnormal is a
// whole multiple of the format's smallest step, so converting the integer and scaling it by a power
// of two is exact.
template <int kMantissaBits, int kBias>
constexpr uint32_t widen(uint32_t magnitude) {
  constexpr float kStep = std::bit_cast<float>(bits_of_power(1 - kBias - kMantissaBits));
  const uint32_t normal =
      (magnitude << (23 - kMantissaBits)) + (static_cast<uint32_t>(127 - kBias) << 23);
  const float subnormal = static_cast<float>(static_cast<int32_t>(magnitude)) * kStep;
  return select(magnitude >= (1u << kMantissaBits), normal, std::bit_cast<uint32_t>(subnormal));
}

// The inverse: from float bits without the sign to those of the narrower format, rounded to nearest
// even. A carry out of the mantissa increments the exponent, as rounding up to a power of two
// should. For subnormal results, adding kAligner does the rounding, because one unit in the last
// place of kAligner is the format's smallest step.
template <int kMantissaBits, int kBias>
constexpr uint32_t narrow(uint32_t magnitude) {
  constexpr int kShift = 23 - kMantissaBits;
  constexpr uint32_t kAligner = bits_of_power(24 - kBias - kMantissaBits);
  const uint32_t half_less_tie = (1u << (kShift - 1)) - 1 + ((magnitude >> kShift) & 1);
  const uint32_t normal =
      (magnitude - (static_cast<uint32_t>(127 - kBias) << 23) + half_less_tie) >> kShift;
  const float aligned = std::bit_cast<float>(magnitude) + std::bit_cast<float>(kAligner);
  const uint32_t subnormal = std::bit_cast<uint32_t>(aligned) - kAligner;
  return select(magnitude >= bits_of_power(1 - kBias), normal, subnormal);
}

// The integer nearest to value, ties to even, clamped to [kLow, kHigh]; 0 for NaN. Adding 1.5 *
// 2^23 leaves the integer in the low mantissa bits if its magnitude is below 2^22, so magnitudes
// are first clamped to 2^21.
template <int kLow, int kHigh>
constexpr int round_to_small_int(float value) {
  static_assert(kLow >= -(1 << 21) && kHigh <= (1 << 21));
  constexpr float kMagic = 12582912.0f;
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & ~kSignBit;
  const uint32_t near = magnitude < bits_of_power(21) ? magnitude : bits_of_power(21);
  const float shifted = std::bit_cast<float>((bits & kSignBit) | near) + kMagic;
  const int rounded = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kMagic);
  const int above = rounded < kLow ? kLow : rounded;
  const int held = above > kHigh ? kHigh : above;
  return static_cast<int>(select(magnitude > kInfinityBits, 0, static_cast<uint32_t>(held)));
}

// The same for 32- and 64-bit integers. From 2^23 on every float is a whole number.
template <class Int>
constexpr Int round_to_int(float value) {
  constexpr float kWhole = 8388608.0f;
  constexpr float kLimit = -static_cast<float>(std::numeric_limits<Int>::min());  // 2^31 or 2^63
  if (!(value == value)) return 0;
  if (value >= kLimit) return std::numeric_limits<Int>::max();
  if (value < -kLimit) return std::numeric_limits<Int>::min();
  if (value >= 0 && value < kWhole) return static_cast<Int>((value + kWhole) - kWhole);
  if (value < 0 && value > -kWhole) return static_cast<Int>((value - kWhole) + kWhole);
  return static_cast<Int>(value);
}

}  // namespace detail

// Widening from a floating-point type or from 8 bits is exact; NaN stays NaN. i32 and i64 round to
// nearest even.
constexpr float to_float(float value) { return value; }

constexpr float to_float(F16 value) {
  const uint32_t magnitude = value.bits & 0x7fffu;
  const uint32_t special = magnitude >= 0x7c00u ? detail::kInfinityBits : 0;
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000u) << 16;
  return std::bit_cast<float>(sign | special | detail::widen<10, 15>(magnitude));
}

constexpr float to_float(Bf16 value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}

constexpr float to_float(E4m3 value) {
  const uint32_t magnitude = value.bits & 0x7fu;
  const uint32_t special = magnitude == 0x7fu ? detail::kInfinityBits : 0;
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x80u) << 24;
  return std::bit_cast<float>(sign | special | detail::widen<3, 7>(magnitude));
}

constexpr float to_float(E5m2 value) {
  const uint32_t magnitude = value.bits & 0x7fu;
  const uint32_t special = magnitude >= 0x7cu ? detail::kInfinityBits : 0;
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x80u) << 24;
  return std::bit_cast<float>(sign | special | detail::widen<2, 15>(magnitude));
}

constexpr float to_float(int8_t value) { return static_cast<float>(value); }
constexpr float to_float(uint8_t value) { return static_cast<float>(value); }
constexpr float to_float(int32_t value) { return static_cast<float>(value); }
constexpr float to_float(int64_t value) { return static_cast<float>(value); }

// Narrowing rounds to nearest even. f16 and bf16 overflow to infinity; e4m3 and e5m2 saturate to
// their largest finite value, infinities included, as CUDA's satfinite conversions do. NaN becomes
// the one NaN the GPU's conversions write: all bits set but the sign. Integers saturate and NaN
// becomes 0. Defined for float, F16, Bf16, E4m3, E5m2, int8_t, uint8_t, int32_t and int64_t.
template <class T>
constexpr T from_float(float value);

template <>
constexpr float from_float<float>(float value) {
  return value;
}

template <>
constexpr F16 from_float<F16>(float value) {
  constexpr uint32_t kOverflow = detail::bits_of_power(16);  // rounds to infinity from 65520 on
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & ~detail::kSignBit;
  const uint32_t held = magnitude < kOverflow ? magnitude : kOverflow;
  const uint32_t rounded = ((bits & detail::kSignBit) >> 16) | detail::narrow<10, 15>(held);
  return {
      static_cast<uint16_t>(detail::select(magnitude > detail::kInfinityBits, 0x7fffu, rounded))};
}

template <>
constexpr Bf16 from_float<Bf16>(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1)) >> 16;
  const bool is_nan = (bits & ~detail::kSignBit) > detail::kInfinityBits;
  return {static_cast<uint16_t>(detail::select(is_nan, 0x7fffu, rounded))};
}

template <>
constexpr E4m3 from_float<E4m3>(float value) {
  constexpr uint32_t kLargest = std::bit_cast<uint32_t>(448.0f);
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & ~detail::kSignBit;
  const uint32_t held = magnitude < kLargest ? magnitude : kLargest;
  const uint32_t rounded = ((bits & detail::kSignBit) >> 24) | detail::narrow<3, 7>(held);
  return {static_cast<uint8_t>(detail::select(magnitude > detail::kInfinityBits, 0x7fu, rounded))};
}

template <>
constexpr E5m2 from_float<E5m2>(float value) {
  constexpr uint32_t kLargest = std::bit_cast<uint32_t>(57344.0f);
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & ~detail::kSignBit;
  const uint32_t held = magnitude < kLargest ? magnitude : kLargest;
  const uint32_t rounded = ((bits & detail::kSignBit) >> 24) | detail::narrow<2, 15>(held);
  return {static_cast<uint8_t>(detail::select(magnitude > detail::kInfinityBits, 0x7fu, rounded))};
}

template <>
constexpr int8_t from_float<int8_t>(float value) {
  return static_cast<int8_t>(detail::round_to_small_int<-128, 127>(value));
}
template <>
constexpr uint8_t from_float<uint8_t>(float value) {
  return static_cast<uint8_t>(detail::round_to_small_int<0, 255>(value));
}
template <>
constexpr int32_t from_float<int32_t>(float value) {
  return detail::round_to_int<int32_t>(value);
}
template <>
constexpr int64_t from_float<int64_t>(float value) {
  return detail::round_to_int<int64_t>(value);
}

// A 4-bit integer, -8 to 7, rounded and clamped as above; I4x2 stores its low nibble.
constexpr int8_t i4_from_float(float value) {
  return static_cast<int8_t>(detail::round_to_small_int<-8, 7>(value));
}

// Converts a whole tensor from any dtype to any dtype; both on the CPU, of equal shape, and not
// overlapping. Every value is rounded once: from integer to integer it is exact or saturates, and
// from integer to floating point there is no intermediate rounding. Equal dtypes copy bits.
void convert(const TensorView& from, const TensorView& to);

}  // namespace tessera
