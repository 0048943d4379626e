// Values of the small floating-point types, from their bits and back. Rounding is to nearest, ties
// to even.
// SPDX-License-Identifier: MIT
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace tessera::emulator {

inline float from_bf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

inline uint16_t to_bf16(float value) {
  if (std::isnan(value)) return 0x7fff;
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline float from_f16(uint16_t bits) { return static_cast<float>(std::bit_cast<_Float16>(bits)); }

// From double precision too, so that a value is rounded once. A NaN has the bits of a device's.
template <class T>
uint16_t to_f16(T value) {
  if (std::isnan(value)) return 0x7fff;
  return std::bit_cast<uint16_t>(static_cast<_Float16>(value));
}

float from_e4m3(uint8_t bits);
float from_e5m2(uint8_t bits);
// Beyond the largest value: the largest (.satfinite, the only form that PTX has).
uint8_t to_e4m3(float value);
uint8_t to_e5m2(float value);

// tf32 is the upper 19 bits of float, rounded to nearest, ties away from zero.
inline float round_to_tf32(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7f800000) == 0x7f800000) return value;
  bits = (bits + 0x1000) & ~uint32_t{0x1fff};
  return std::bit_cast<float>(bits);
}

inline float flush_subnormal(float value) {
  return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0f, value) : value;
}

}  // namespace tessera::emulator
