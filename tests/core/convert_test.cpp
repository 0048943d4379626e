// Scalar conversions against the formats' definitions: every pattern, and every midpoint.
// SPDX-License-Identifier: MIT
#include "tessera/core/convert.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

#include "tests/core/formats.h"

namespace tessera {
namespace {

using testing::decode;
using testing::Encoder;
using testing::kLayout;
using testing::Layout;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

template <class T>
T from_bits(uint32_t bits) {
  return T{static_cast<decltype(T::bits)>(bits)};
}

template <class T>
class NarrowFloat : public ::testing::Test {
 protected:
  static constexpr Layout kFormat = kLayout<T>;

  // Both signs of `value` must become `magnitude` with that sign.
  static void expect_rounds(float value, uint32_t magnitude) {
    ASSERT_EQ(from_float<T>(value).bits, magnitude) << std::hexfloat << value;
    ASSERT_EQ(from_float<T>(-value).bits, magnitude | kFormat.sign_bit())
        << std::hexfloat << -value;
  }
};

struct FormatNames {
  template <class T>
  static std::string GetName(int) {
    return std::string(name(T::dtype));
  }
};
using Formats = ::testing::Types<F16, Bf16, E4m3, E5m2>;
TYPED_TEST_SUITE(NarrowFloat, Formats, FormatNames);

TYPED_TEST(NarrowFloat, EveryPatternWidensToItsDefinition) {
  for (uint32_t bits = 0; bits < this->kFormat.num_patterns(); ++bits) {
    const float got = to_float(from_bits<TypeParam>(bits));
    const double want = decode(this->kFormat, bits);
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(got)) << bits << " gave " << got;
    } else {
      ASSERT_EQ(static_cast<double>(got), want) << bits;
      ASSERT_EQ(std::signbit(got), std::signbit(want)) << bits;
    }
  }
}

TYPED_TEST(NarrowFloat, EveryFinitePatternSurvivesARoundTrip) {
  for (uint32_t bits = 0; bits < this->kFormat.num_patterns(); ++bits) {
    if (!std::isfinite(decode(this->kFormat, bits))) continue;
    ASSERT_EQ(from_float<TypeParam>(to_float(from_bits<TypeParam>(bits))).bits, bits);
  }
}

TYPED_TEST(NarrowFloat, EveryMidpointRoundsToTheEvenNeighbour) {
  for (uint32_t low = 0; low < this->kFormat.largest_finite(); ++low) {
    const double below = decode(this->kFormat, low);
    const double above = decode(this->kFormat, low + 1);
    const auto middle = static_cast<float>((below + above) / 2);
    ASSERT_EQ(static_cast<double>(middle), (below + above) / 2) << "a float holds every midpoint";
    this->expect_rounds(middle, low % 2 == 0 ? low : low + 1);
  }
}

TYPED_TEST(NarrowFloat, OneUlpBesideAMidpointOrAValueRoundsToTheNearest) {
  for (uint32_t low = 0; low < this->kFormat.largest_finite(); ++low) {
    const auto below = static_cast<float>(decode(this->kFormat, low));
    const auto above = static_cast<float>(decode(this->kFormat, low + 1));
    const auto middle = static_cast<float>((static_cast<double>(below) + above) / 2);
    this->expect_rounds(std::nextafter(middle, below), low);
    this->expect_rounds(std::nextafter(middle, above), low + 1);
    this->expect_rounds(std::nextafter(below, above), low);
    this->expect_rounds(std::nextafter(above, below), low + 1);
  }
}

TYPED_TEST(NarrowFloat, AFloatSubnormalIsNotMistakenForANormal) {
  const Encoder encoder(this->kFormat);
  for (uint32_t bits = 1; bits < 0x00800000u; bits += 997) {
    const auto value = std::bit_cast<float>(bits);
    this->expect_rounds(value, encoder.encode(value));
  }
}

TYPED_TEST(NarrowFloat, OverflowGoesToInfinityOrSaturates) {
  const uint32_t last = this->kFormat.largest_finite();
  const uint32_t beyond = this->kFormat.saturates ? last : this->kFormat.infinity();
  const double largest = decode(this->kFormat, last);
  const double half_step = (largest - decode(this->kFormat, last - 1)) / 2;
  const auto limit = static_cast<float>(largest + half_step);
  this->expect_rounds(static_cast<float>(largest), last);
  this->expect_rounds(std::nextafter(limit, 0.0f), last);
  this->expect_rounds(limit, beyond);
  this->expect_rounds(std::nextafter(limit, kInfinity), beyond);
  this->expect_rounds(std::numeric_limits<float>::max(), beyond);
  this->expect_rounds(kInfinity, beyond);
}

TYPED_TEST(NarrowFloat, EveryNanBecomesTheOneTheGpuWrites) {
  for (uint32_t payload = 1; payload < 0x00800000u; payload += 4093) {
    for (const uint32_t sign : {0u, 0x80000000u}) {
      const auto nan = std::bit_cast<float>(sign | 0x7f800000u | payload);
      ASSERT_EQ(from_float<TypeParam>(nan).bits, this->kFormat.canonical_nan()) << payload;
    }
  }
  const auto last = std::bit_cast<float>(0x7fffffffu);
  EXPECT_EQ(from_float<TypeParam>(last).bits, this->kFormat.canonical_nan());
}

TYPED_TEST(NarrowFloat, RandomFloatsAgreeWithASearchOfEveryValue) {
  const Encoder encoder(this->kFormat);
  std::mt19937 random(20);
  for (int i = 0; i < 300'000; ++i) {
    const auto value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    ASSERT_EQ(from_float<TypeParam>(value).bits, encoder.encode(value)) << std::hexfloat << value;
  }
}

// The reference: rounds with the C library in long double, then clamps to the type's range.
template <class Int>
Int model_int(float value, Int low, Int high) {
  if (std::isnan(value)) return 0;
  const long double rounded = std::nearbyint(static_cast<long double>(value));
  if (rounded <= static_cast<long double>(low)) return low;
  if (rounded >= static_cast<long double>(high)) return high;
  return static_cast<Int>(rounded);
}

template <class Int>
class Integer : public ::testing::Test {
 protected:
  static void expect_rounds(float value) {
    constexpr Int kLow = std::numeric_limits<Int>::min();
    constexpr Int kHigh = std::numeric_limits<Int>::max();
    for (const float signed_value : {value, -value}) {
      ASSERT_EQ(from_float<Int>(signed_value), model_int<Int>(signed_value, kLow, kHigh))
          << std::hexfloat << signed_value;
    }
  }
};
struct IntegerNames {
  template <class T>
  static std::string GetName(int) {
    return std::string(name(dtype_of<T>));
  }
};
using Integers = ::testing::Types<int8_t, uint8_t, int32_t, int64_t>;
TYPED_TEST_SUITE(Integer, Integers, IntegerNames);

TYPED_TEST(Integer, RoundsTiesToEvenThroughTheSmallRange) {
  for (float value = 0; value <= 300; value += 0.25f) {
    this->expect_rounds(value);
    this->expect_rounds(std::nextafter(value, kInfinity));
    this->expect_rounds(std::nextafter(value, 0.0f));
  }
}

TYPED_TEST(Integer, RoundsAndSaturatesAroundEveryPowerOfTwo) {
  for (int exponent = -149; exponent < 128; ++exponent) {
    const float power = std::ldexp(1.0f, exponent);
    for (const float value :
         {power, power * 1.5f, std::nextafter(power, 0.0f), std::nextafter(power, kInfinity)}) {
      this->expect_rounds(value);
      this->expect_rounds(value + 0.5f);
    }
  }
  this->expect_rounds(kInfinity);
}

TYPED_TEST(Integer, RandomFloatsAgreeWithTheCLibrary) {
  std::mt19937 random(21);
  for (int i = 0; i < 300'000; ++i) {
    this->expect_rounds(std::bit_cast<float>(static_cast<uint32_t>(random())));
  }
}

TYPED_TEST(Integer, NanBecomesZero) {
  EXPECT_EQ(from_float<TypeParam>(std::numeric_limits<float>::quiet_NaN()), 0);
  EXPECT_EQ(from_float<TypeParam>(-std::numeric_limits<float>::quiet_NaN()), 0);
}

TEST(Integer4, RoundsAndSaturates) {
  for (float value = -20; value <= 20; value += 0.125f) {
    ASSERT_EQ(i4_from_float(value), model_int<int8_t>(value, -8, 7)) << value;
  }
  EXPECT_EQ(i4_from_float(kInfinity), 7);
  EXPECT_EQ(i4_from_float(-kInfinity), -8);
  EXPECT_EQ(i4_from_float(std::numeric_limits<float>::quiet_NaN()), 0);
}

TEST(Float, PassesThroughUnchanged) {
  EXPECT_EQ(from_float<float>(1.25f), 1.25f);
  EXPECT_EQ(to_float(-1.25f), -1.25f);
}

// Values that the formats' specifications list, to check the model above itself.
static_assert(from_float<F16>(1.0f).bits == 0x3c00 && to_float(F16{0x7bff}) == 65504.0f);
static_assert(to_float(F16{0x0001}) == 0x1p-24f && from_float<F16>(65520.0f).bits == 0x7c00);
static_assert(from_float<Bf16>(1.0f).bits == 0x3f80 && from_float<Bf16>(-2.0f).bits == 0xc000);
static_assert(from_float<E4m3>(1.0f).bits == 0x38 && from_float<E4m3>(1e9f).bits == 0x7e);
static_assert(to_float(E4m3{0x7e}) == 448.0f && to_float(E4m3{0x01}) == 0x1p-9f);
static_assert(from_float<E5m2>(1.0f).bits == 0x3c && from_float<E5m2>(-1e9f).bits == 0xfb);
static_assert(to_float(E5m2{0x7b}) == 57344.0f && to_float(E5m2{0x01}) == 0x1p-16f);
static_assert(from_float<int8_t>(2.5f) == 2 && from_float<int8_t>(-3.5f) == -4);
static_assert(from_float<uint8_t>(-1.0f) == 0 && from_float<int32_t>(3e9f) == 2147483647);

}  // namespace
}  // namespace tessera
