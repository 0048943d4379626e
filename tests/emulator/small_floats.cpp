// FP8, whose formats the host does not know.
// SPDX-License-Identifier: MIT
#include "tests/emulator/small_floats.h"

#include <algorithm>
#include <limits>

namespace tessera::emulator {
namespace {

struct Format {
  int mantissa_bits;
  int bias;
  float largest;
  uint8_t largest_bits;
};
constexpr Format kE4m3{3, 7, 448.0f, 0x7e};
constexpr Format kE5m2{2, 15, 57344.0f, 0x7b};
constexpr uint8_t kNan = 0x7f;

uint8_t round_to(const Format& format, float value) {
  if (std::isnan(value)) return kNan;
  const auto sign = static_cast<uint8_t>(std::signbit(value) ? 0x80 : 0);
  const float magnitude = std::fabs(value);
  if (magnitude >= format.largest) return sign | format.largest_bits;
  if (magnitude == 0) return sign;
  // The exponent of the value, or that of subnormal numbers.
  const int exponent = std::max(std::ilogb(magnitude), 1 - format.bias);
  const float step = std::ldexp(1.0f, exponent - format.mantissa_bits);
  const auto steps = static_cast<int>(std::nearbyint(magnitude / step));
  // A mantissa that rounds up to the next power of two carries into the exponent by itself.
  const int bits = ((exponent + format.bias - 1) << format.mantissa_bits) + steps;
  return static_cast<uint8_t>(sign | std::min(bits, int{format.largest_bits}));
}

}  // namespace

float from_e4m3(uint8_t bits) {
  const int exponent = bits >> 3 & 15, mantissa = bits & 7;
  if (exponent == 15 && mantissa == 7) return std::numeric_limits<float>::quiet_NaN();
  const float magnitude = exponent == 0
                              ? std::ldexp(static_cast<float>(mantissa), -9)
                              : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return (bits & 0x80) != 0 ? -magnitude : magnitude;
}

// The upper half of a 16-bit number.
float from_e5m2(uint8_t bits) { return from_f16(static_cast<uint16_t>(bits << 8)); }

uint8_t to_e4m3(float value) { return round_to(kE4m3, value); }
uint8_t to_e5m2(float value) { return round_to(kE5m2, value); }

}  // namespace tessera::emulator
