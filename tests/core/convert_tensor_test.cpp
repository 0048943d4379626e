// Whole-tensor conversion: all pairs of dtypes against a model, strides, packing and refusals.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <ostream>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "tessera/core/convert.h"
#include "tests/core/formats.h"
#include "tests/core/message_of.h"

namespace tessera {

// GoogleTest prints parameters with this.
void PrintTo(DType dtype, std::ostream* out) { *out << name(dtype); }

namespace {

using testing::decode;
using testing::Encoder;
using testing::kLayout;
using testing::message_of;

constexpr int64_t kLow64 = std::numeric_limits<int64_t>::min();
constexpr int64_t kHigh64 = std::numeric_limits<int64_t>::max();

// Element i of contiguous memory as raw bits, sign-extended for the integers.
int64_t raw(const TensorView& view, int64_t i) {
  const auto* bytes = view.as<const uint8_t>();
  if (view.dtype == DType::i4) {
    const int nibble = i % 2 == 0 ? bytes[i / 2] & 15 : bytes[i / 2] >> 4;
    return nibble < 8 ? nibble : nibble - 16;
  }
  const int num_bytes = bit_width(view.dtype) / 8;
  uint64_t bits = 0;
  std::memcpy(&bits, bytes + i * num_bytes, static_cast<size_t>(num_bytes));
  if (view.dtype == DType::i8) return static_cast<int8_t>(bits);
  if (view.dtype == DType::i32) return static_cast<int32_t>(bits);
  return static_cast<int64_t>(bits);
}

void set_raw(const TensorView& view, int64_t i, int64_t bits) {
  auto* bytes = view.as<uint8_t>();
  if (view.dtype == DType::i4) {
    const auto nibble = static_cast<uint8_t>(bits & 15);
    uint8_t& byte = bytes[i / 2];
    byte = static_cast<uint8_t>(i % 2 == 0 ? (byte & 0xf0) | nibble : (byte & 0x0f) | nibble << 4);
    return;
  }
  const int num_bytes = bit_width(view.dtype) / 8;
  std::memcpy(bytes + i * num_bytes, &bits, static_cast<size_t>(num_bytes));
}

// The number that raw bits stand for; long double holds all of them exactly.
long double model_value(DType dtype, int64_t bits) {
  const auto pattern = static_cast<uint32_t>(bits);
  switch (dtype) {
    case DType::f32: return std::bit_cast<float>(pattern);
    case DType::f16: return decode(kLayout<F16>, pattern);
    case DType::bf16: return decode(kLayout<Bf16>, pattern);
    case DType::e4m3: return decode(kLayout<E4m3>, pattern);
    case DType::e5m2: return decode(kLayout<E5m2>, pattern);
    default: return static_cast<long double>(bits);
  }
}

int64_t model_integer(long double value, int64_t low, int64_t high) {
  if (std::isnan(value)) return 0;
  const long double rounded = std::nearbyint(value);
  if (rounded <= static_cast<long double>(low)) return low;
  if (rounded >= static_cast<long double>(high)) return high;
  return static_cast<int64_t>(rounded);
}

int64_t model_bits(DType dtype, long double value) {
  static const Encoder f16(kLayout<F16>);
  static const Encoder bf16(kLayout<Bf16>);
  static const Encoder e4m3(kLayout<E4m3>);
  static const Encoder e5m2(kLayout<E5m2>);
  switch (dtype) {
    case DType::f32: return std::bit_cast<uint32_t>(static_cast<float>(value));
    case DType::f16: return f16.encode(value);
    case DType::bf16: return bf16.encode(value);
    case DType::e4m3: return e4m3.encode(value);
    case DType::e5m2: return e5m2.encode(value);
    case DType::i8: return model_integer(value, -128, 127);
    case DType::u8: return model_integer(value, 0, 255);
    case DType::i4: return model_integer(value, -8, 7);
    case DType::i32: return model_integer(value, -2147483648LL, 2147483647);
    case DType::i64: return model_integer(value, kLow64, kHigh64);
  }
  return 0;
}

// Every bit pattern of a narrow type. For 32 and 64 bits: edge cases, values that a conversion by
// way of float would round twice, and random numbers of every magnitude.
std::vector<int64_t> source_bits(DType dtype) {
  std::vector<int64_t> bits;
  const int width = bit_width(dtype);
  if (dtype == DType::i4 || dtype == DType::i8) {
    for (int64_t i = -(1 << (width - 1)); i < (1 << (width - 1)); ++i) bits.push_back(i);
    return bits;
  }
  if (width <= 16) {
    for (int64_t i = 0; i < (1 << width); ++i) bits.push_back(i);
    return bits;
  }
  std::mt19937_64 random(7);
  if (dtype == DType::f32) {
    for (int i = 0; i < 20'000; ++i) bits.push_back(static_cast<uint32_t>(random()));
    for (const uint32_t edge : {0u, 0x80000000u, 0x7f800000u, 0xff800000u, 0x7fc00000u, 1u,
                                0x7f7fffffu, 0x3f000000u, 0x3fc00000u, 0x4b000000u}) {
      bits.push_back(edge);
    }
    return bits;
  }
  const auto add = [&](uint64_t magnitude) {  // both signs; may wrap at the top
    bits.push_back(static_cast<int64_t>(magnitude));
    bits.push_back(static_cast<int64_t>(0 - magnitude));
  };
  for (int shift = 0; shift < width - 1; ++shift) {
    const uint64_t power = uint64_t{1} << shift;
    for (const uint64_t step : {power, power >> 8, power >> 12, power >> 24}) {
      for (const uint64_t nudge : {0, 1, 2}) {
        add(power + step + nudge - 1);
        add(power - step + nudge - 1);
      }
    }
    for (int i = 0; i < 200; ++i) add(random() >> (63 - shift));
  }
  bits.insert(bits.end(), {kLow64, kHigh64, -2147483648LL, 2147483647, 0});
  if (dtype == DType::i32) {
    for (int64_t& value : bits) value = std::clamp<int64_t>(value, -2147483648LL, 2147483647);
  }
  return bits;
}

using Pair = std::tuple<DType, DType>;
class EveryPair : public ::testing::TestWithParam<Pair> {};

TEST_P(EveryPair, AgreesWithTheModel) {
  const auto [from_dtype, to_dtype] = GetParam();
  const std::vector<int64_t> bits = source_bits(from_dtype);
  const auto count = static_cast<int64_t>(bits.size());
  const Tensor from(from_dtype, {count});
  const Tensor to(to_dtype, {count});
  for (int64_t i = 0; i < count; ++i) set_raw(from, i, bits[static_cast<size_t>(i)]);
  convert(from, to);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t source = bits[static_cast<size_t>(i)];
    const long double value = model_value(from_dtype, source);
    const int64_t got = raw(to, i);
    if (from_dtype == to_dtype) {
      ASSERT_EQ(got, source) << "a dtype to itself copies bits, NaN payloads included";
    } else if (to_dtype == DType::f32 && std::isnan(value)) {
      ASSERT_TRUE(std::isnan(model_value(to_dtype, got))) << source;
    } else {
      ASSERT_EQ(got, model_bits(to_dtype, value)) << "from bits " << source << ", value " << value;
    }
  }
}

std::string pair_name(const ::testing::TestParamInfo<Pair>& info) {
  return std::string(name(std::get<0>(info.param))) + "_to_" +
         std::string(name(std::get<1>(info.param)));
}
INSTANTIATE_TEST_SUITE_P(Convert, EveryPair,
                         ::testing::Combine(::testing::ValuesIn(kAllDTypes),
                                            ::testing::ValuesIn(kAllDTypes)),
                         pair_name);

TEST(Convert, IntegersRoundOnceOnTheirWayToBf16) {
  // Just above half way between 2^30 and the next bf16; as a float it would be exactly half way.
  const Tensor from(DType::i32, {1});
  const Tensor to(DType::bf16, {1});
  from.view().as<int32_t>()[0] = (1 << 30) + (1 << 22) + 1;
  convert(from, to);
  EXPECT_EQ(to_float(to.view().as<Bf16>()[0]), 0x1.02p30f);
}

TEST(Convert, IntegersDoNotPassThroughFloat) {
  const Tensor from(DType::i32, {2});
  const Tensor to(DType::i64, {2});
  from.view().as<int32_t>()[0] = 16'777'217;  // 2^24 + 1, which no float holds
  from.view().as<int32_t>()[1] = -2'147'483'647;
  convert(from, to);
  EXPECT_EQ(to.view().as<int64_t>()[0], 16'777'217);
  EXPECT_EQ(to.view().as<int64_t>()[1], -2'147'483'647);
}

// A view over `memory` whose elements at increasing index are 0, 1, 2, ...
void count_up(const TensorView& contiguous) {
  for (int64_t i = 0; i < contiguous.num_elements(); ++i) contiguous.as<int32_t>()[i] = int32_t(i);
}

TEST(Convert, WalksTransposedAndSlicedViews) {
  const Tensor from(DType::i32, {7, 5, 3});
  const Tensor to(DType::f32, {3, 4, 7});
  count_up(from);
  const TensorView source = from.view().slice(1, 1, 5).transposed(0, 2);
  convert(source, to);
  for (int64_t a = 0; a < 3; ++a) {
    for (int64_t b = 0; b < 4; ++b) {
      for (int64_t c = 0; c < 7; ++c) {
        const int64_t index[] = {a, b, c};
        ASSERT_EQ(load_as_float(to, index), static_cast<float>(c * 15 + (b + 1) * 3 + a));
      }
    }
  }
}

TEST(Convert, WritesOnlyTheElementsOfAStridedDestination) {
  const Tensor from(DType::i32, {4, 600});  // longer than one chunk
  const Tensor to(DType::i64, {600, 6});
  count_up(from);
  fill_bytes(to.view().data, {}, 0xff, static_cast<size_t>(to.size_bytes()));
  convert(from, to.view().slice(1, 1, 5).transposed(0, 1));
  for (int64_t row = 0; row < 600; ++row) {
    for (int64_t col = 0; col < 6; ++col) {
      const bool is_written = col >= 1 && col < 5;
      ASSERT_EQ(to.view().as<int64_t>()[row * 6 + col], is_written ? (col - 1) * 600 + row : -1);
    }
  }
}

TEST(Convert, TakesBroadcastAndNegativeStrides) {
  int32_t values[] = {10, 11, 12};
  const TensorView broadcast{
      .data = values + 2, .dtype = DType::i32, .rank = 2, .shape = {2, 3}, .strides = {0, -1}};
  const Tensor to(DType::f16, {2, 3});
  convert(broadcast, to);
  for (int64_t i = 0; i < 6; ++i) {
    EXPECT_EQ(to_float(to.view().as<F16>()[i]), static_cast<float>(12 - i % 3));
  }
}

TEST(Convert, CopiesBitsBetweenStridesOfOneDtype) {
  const Tensor from(DType::e4m3, {2, 128});
  const Tensor to(DType::e4m3, {128, 2});
  for (int i = 0; i < 256; ++i) from.view().as<uint8_t>()[i] = static_cast<uint8_t>(i);
  convert(from, to.view().transposed(0, 1));
  for (int i = 0; i < 256; ++i) {
    ASSERT_EQ(to.view().as<uint8_t>()[(i % 128) * 2 + i / 128], static_cast<uint8_t>(i));
  }
}

TEST(Convert, PacksTheEvenElementOfI4IntoTheLowNibble) {
  const Tensor from(DType::i32, {4});
  const Tensor to(DType::i4, {4});
  const int32_t values[] = {1, -1, -8, 7};
  std::ranges::copy(values, from.view().as<int32_t>());
  convert(from, to);
  EXPECT_EQ(to.view().as<uint8_t>()[0], 0xf1);
  EXPECT_EQ(to.view().as<uint8_t>()[1], 0x78);
}

TEST(Convert, AnOddCountOfI4LeavesTheLastNibbleAlone) {
  const Tensor from(DType::i32, {3});
  const Tensor to(DType::i4, {3});
  count_up(from);
  fill_bytes(to.view().data, {}, 0xff, 2);
  convert(from, to);
  EXPECT_EQ(to.view().as<uint8_t>()[0], 0x10);
  EXPECT_EQ(to.view().as<uint8_t>()[1], 0xf2);
}

TEST(Convert, AColumnSliceOfI4LeavesItsNeighboursAlone) {
  const Tensor from(DType::i32, {3, 4});
  const Tensor to(DType::i4, {3, 8});
  for (int i = 0; i < 12; ++i) from.view().as<int32_t>()[i] = i % 8;
  fill_bytes(to.view().data, {}, 0x99, 12);
  convert(from, to.view().slice(1, 2, 6));
  for (int64_t i = 0; i < 24; ++i) {
    const int64_t col = i % 8;
    const bool is_written = col >= 2 && col < 6;
    ASSERT_EQ(raw(to, i), is_written ? (i / 8 * 4 + col - 2) % 8 : -7) << i;
  }
  const Tensor back(DType::i64, {3, 4});
  convert(to.view().slice(1, 2, 6), back);
  for (int64_t i = 0; i < 12; ++i) ASSERT_EQ(back.view().as<int64_t>()[i], i % 8);
}

TEST(Convert, ScalarsAndEmptyTensorsAreTensorsToo) {
  float value = 2.5f;
  Bf16 result{};
  convert({.data = &value, .dtype = DType::f32}, {.data = &result, .dtype = DType::bf16});
  EXPECT_EQ(to_float(result), 2.5f);
  convert(TensorView::contiguous(nullptr, DType::f32, {3, 0}),
          TensorView::contiguous(nullptr, DType::i8, {3, 0}));
}

TEST(Convert, RefusesDifferentShapes) {
  const Tensor from(DType::f32, {2, 3});
  const Tensor to(DType::f16, {3, 2});
  const std::string message = message_of([&] { convert(from, to); });
  EXPECT_TRUE(
      message.starts_with("convert: from is f32[2, 3] on cpu and to is f16[3, 2] on cpu; "
                          "the shapes must be equal"))
      << message;
}

TEST(Convert, RefusesGpuMemory) {
  const Tensor from(DType::f32, {2});
  const auto to = TensorView::contiguous(nullptr, DType::f16, {2}, cuda_device());
  const std::string message = message_of([&] { convert(from, to); });
  EXPECT_NE(message.find("f16[2] on cuda:0; copy both to the CPU first"), std::string::npos)
      << message;
}

}  // namespace
}  // namespace tessera
