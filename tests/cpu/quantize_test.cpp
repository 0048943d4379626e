// Quantise and dequantise on the CPU. The header fixes every bit: scales, codes and decoded values
// are compared exactly with a reference that goes element by element.
// SPDX-License-Identifier: MIT
#include "cpu/elementwise.h"
#include "tessera/core/convert.h"
#include "tests/cpu/tensors.h"

namespace tessera::testing {
namespace {

enum class Granularity { tensor, channel, token, group };
constexpr Granularity kGranularities[] = {Granularity::tensor, Granularity::channel,
                                          Granularity::token, Granularity::group};
constexpr int64_t kGroup = 6;

struct Format {
  DType code;
  bool has_zero_point;
};
constexpr Format kFormats[] = {{DType::i8, false}, {DType::u8, true},    {DType::i4, false},
                               {DType::i4, true},  {DType::e4m3, false}, {DType::e5m2, false}};

Index scale_shape(Granularity granularity, int64_t rows, int64_t cols) {
  switch (granularity) {
    case Granularity::tensor: return {1};
    case Granularity::channel: return {1, cols};
    case Granularity::token: return {rows, 1};
    case Granularity::group: return {rows, cols / kGroup};
  }
  return {};
}

size_t scale_index(Granularity granularity, int64_t row, int64_t col, int64_t cols) {
  switch (granularity) {
    case Granularity::tensor: return 0;
    case Granularity::channel: return static_cast<size_t>(col);
    case Granularity::token: return static_cast<size_t>(row);
    case Granularity::group: return static_cast<size_t>(row * (cols / kGroup) + col / kGroup);
  }
  return 0;
}

// The finite FP8 value nearest to x, of two equally near the one with the even code: by trying all.
template <class T>
double nearest_fp8(double x) {
  if (std::isnan(x)) return kNan;
  const double largest = quant_max(T::dtype);
  double best = 0.0;
  int best_code = 0;
  for (int code = 0; code < 128; ++code) {
    const double value = to_float(T{static_cast<uint8_t>(code)});
    if (!(value <= largest)) continue;
    const double distance = std::fabs(std::fabs(x) - value);
    const double best_distance = std::fabs(std::fabs(x) - best);
    const bool is_tie = distance == best_distance && code % 2 == 0 && best_code % 2 != 0;
    if (distance < best_distance || is_tie) best = value, best_code = code;
  }
  return std::signbit(x) ? -best : best;
}

bool is_fp8(DType dtype) { return dtype == DType::e4m3 || dtype == DType::e5m2; }

// The value a code stands for before the scale: an integer for integer types.
double code_of(Format format, float scaled, int zero_point) {
  if (is_fp8(format.code) && !std::isfinite(scaled)) return kNan;
  if (format.code == DType::e4m3) return nearest_fp8<E4m3>(std::clamp(scaled, -448.0f, 448.0f));
  if (format.code == DType::e5m2) return nearest_fp8<E5m2>(std::clamp(scaled, -57344.0f, 57344.0f));
  const double rounded = std::isnan(scaled) ? 0.0 : std::nearbyint(static_cast<double>(scaled));
  if (format.has_zero_point) {
    return std::clamp(rounded + zero_point, 0.0, format.code == DType::u8 ? 255.0 : 15.0);
  }
  const double limit = format.code == DType::i8 ? 127.0 : 7.0;
  return std::clamp(rounded, -limit, limit);
}

// i4 codes with a zero point are unsigned nibbles, which the view reads as two's complement.
Values codes_of(const TensorView& codes, bool has_zero_point) {
  Values values = values_of(codes);
  if (codes.dtype != DType::i4 || !has_zero_point) return values;
  for (double& value : values) value = value < 0.0 ? value + 16.0 : value;
  return values;
}

struct QuantizeReference {
  Values scales, zero_points, codes;
};

QuantizeReference reference(const TensorView& x, Format format, Granularity granularity) {
  const int64_t cols = x.size(-1), rows = x.num_elements() / cols;
  const Values xs = values_of(x);
  size_t num_scales = 1;
  for (int64_t size : scale_shape(granularity, rows, cols)) {
    num_scales *= static_cast<size_t>(size);
  }
  std::vector<float> low(num_scales, 0.0f), high(num_scales, 0.0f);
  std::vector<bool> is_finite(num_scales, true);
  const auto index = [&](size_t i) {
    const int64_t at = static_cast<int64_t>(i);
    return scale_index(granularity, at / cols, at % cols, cols);
  };
  for (size_t i = 0; i < xs.size(); ++i) {
    low[index(i)] = std::fmin(low[index(i)], static_cast<float>(xs[i]));
    high[index(i)] = std::fmax(high[index(i)], static_cast<float>(xs[i]));
    if (!std::isfinite(xs[i])) is_finite[index(i)] = false;
  }
  const float levels = format.code == DType::u8 ? 255.0f : 15.0f;
  QuantizeReference result;
  for (size_t s = 0; s < num_scales; ++s) {
    const float qmax = quant_max(format.code);
    const float width = high[s] - low[s], absmax = std::max(-low[s], high[s]);
    float scale = format.has_zero_point ? width / levels : absmax / qmax;
    if (scale == 0.0f) scale = 1.0f;
    result.scales.push_back(is_finite[s] ? scale : kNan);
    result.zero_points.push_back(is_finite[s] ? std::nearbyint(-low[s] * (1.0f / scale)) : 0.0);
  }
  for (size_t i = 0; i < xs.size(); ++i) {
    const float scaled =
        static_cast<float>(xs[i]) * (1.0f / static_cast<float>(result.scales[index(i)]));
    result.codes.push_back(code_of(format, scaled, static_cast<int>(result.zero_points[index(i)])));
  }
  return result;
}

using Case = std::tuple<DType, Format, Granularity>;

class CpuQuantize : public ::testing::TestWithParam<Case> {
 protected:
  DType dtype() const { return std::get<0>(GetParam()); }
  Format format() const { return std::get<1>(GetParam()); }
  Granularity granularity() const { return std::get<2>(GetParam()); }
};

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  constexpr const char* kNames[] = {"tensor", "channel", "token", "group"};
  const Format format = std::get<1>(info.param);
  return std::string(name(std::get<0>(info.param))) + "_" + std::string(name(format.code)) +
         (format.has_zero_point ? "_zero_" : "_") +
         kNames[static_cast<int>(std::get<2>(info.param))];
}

// Random rows, among them one of zeros, one all positive, one all negative and one with a value
// that is not finite.
TEST_P(CpuQuantize, DynamicScalesAndCodesAreExact) {
  const std::pair<int64_t, double> cases[] = {
      {kGroup, kNan}, {5 * kGroup, kInfinity}, {5 * kGroup, -kInfinity}, {22 * kGroup, 1.0}};
  for (const auto& [cols, special] : cases) {
    constexpr int64_t kRows = 9;
    GappedRows x(dtype(), kRows, cols, 5);
    GappedRows out(format().code, kRows, cols, 4);
    fill_normal(x.view(), static_cast<uint64_t>(cols), 3.0);
    fill(x.view().slice(0, 2, 3), [] { return 0.0; });
    fill(x.view().slice(0, 3, 4), [] { return 2.5; });
    fill(x.view().slice(0, 4, 5), [] { return -0.75; });
    store_from_float(x.view(), Index{5, 1}, static_cast<float>(special));
    const Index shape = scale_shape(granularity(), kRows, cols);
    Tensor scale(DType::f32, shape), zero(DType::i32, shape);
    QuantizeArgs args{.x = x.view(), .out = out.view(), .scale = scale, .zero_point = {}};
    if (format().has_zero_point) args.zero_point = zero;
    cpu::quantize(args);
    const QuantizeReference want = reference(x.view(), format(), granularity());
    EXPECT_TRUE(all_equal(values_of(scale), want.scales));
    EXPECT_TRUE(all_equal(codes_of(out.view(), format().has_zero_point), want.codes));
    EXPECT_TRUE(out.gaps_untouched());
    if (format().has_zero_point) {
      EXPECT_TRUE(all_equal(values_of(zero), want.zero_points));
    }

    // The same scales, now read, give the same codes.
    Tensor again(format().code, {kRows, cols});
    args.out = again;
    args.mode = ScaleMode::fixed;
    cpu::quantize(args);
    EXPECT_TRUE(all_equal(codes_of(again, format().has_zero_point), want.codes));
  }
}

// For every type, a value that is not finite comes back as NaN, and so does everything that shares
// its scale.
TEST_P(CpuQuantize, WhatIsNotFiniteComesBackAsNan) {
  constexpr int64_t kRows = 4, kCols = 2 * kGroup;
  for (const double special : {kNan, kInfinity, -kInfinity}) {
    Tensor x(dtype(), {kRows, kCols}), out(format().code, {kRows, kCols});
    fill_normal(x, 3);
    store_from_float(x.view(), Index{1, 2}, static_cast<float>(special));
    const Index shape = scale_shape(granularity(), kRows, kCols);
    Tensor scale(DType::f32, shape), zero(DType::i32, shape), back(DType::f32, {kRows, kCols});
    const std::optional<TensorView> zeros =
        format().has_zero_point ? std::optional(zero.view()) : std::nullopt;
    cpu::quantize({.x = x, .out = out, .scale = scale, .zero_point = zeros});
    cpu::dequantize({.x = out, .scale = scale, .zero_point = zeros, .out = back});
    const size_t bad = scale_index(granularity(), 1, 2, kCols);
    const Values values = values_of(back);
    for (int64_t i = 0; i < kRows * kCols; ++i) {
      const bool shares = scale_index(granularity(), i / kCols, i % kCols, kCols) == bad;
      EXPECT_EQ(std::isnan(values[static_cast<size_t>(i)]), shares) << i << " of " << special;
    }
  }
}

// (q - zero_point) * scale is one float product rounded once to the output type.
TEST_P(CpuQuantize, DecodingIsExactForEveryCode) {
  constexpr int64_t kRows = 8, kCols = 16 * kGroup;
  Tensor codes(format().code, {kRows, kCols}), out(dtype(), {kRows, kCols});
  for (int64_t i = 0; i < codes.size_bytes(); ++i) {
    codes.view().as<uint8_t>()[i] = static_cast<uint8_t>(i);  // every bit pattern
  }
  const Index shape = scale_shape(granularity(), kRows, kCols);
  Tensor scale(DType::f32, shape), zero(DType::i32, shape), want(dtype(), {kRows, kCols});
  fill_normal(scale, 1);
  fill_integers(zero, 2, -300, 300);
  DequantizeArgs args{.x = codes, .scale = scale, .zero_point = {}, .out = out};
  if (format().has_zero_point) args.zero_point = zero;
  cpu::dequantize(args);
  const Values q = codes_of(codes, format().has_zero_point);
  const Values scales = values_of(scale), zeros = values_of(zero);
  size_t i = 0;
  fill(want, [&] {
    const int64_t at = static_cast<int64_t>(i);
    const size_t s = scale_index(granularity(), at / kCols, at % kCols, kCols);
    const double shifted = q[i++] - (format().has_zero_point ? zeros[s] : 0.0);
    return shifted * scales[s];
  });
  EXPECT_TRUE(all_equal(values_of(out), values_of(want)));
}

// Every code of every byte, as an index: table[q] * scale.
TEST(CpuDequantize, LooksUpCodesInATable) {
  constexpr int64_t kRows = 8, kCols = 64;
  const Tensor codes(DType::i4, {kRows, kCols}), scale(DType::f32, {kRows, 2});
  const Tensor table(DType::f32, {kTableSize}), out(DType::f32, {kRows, kCols});
  for (int64_t i = 0; i < codes.size_bytes(); ++i) {
    codes.view().as<uint8_t>()[i] = static_cast<uint8_t>(i);
  }
  fill_normal(scale, 1);
  fill_normal(table, 2);
  cpu::dequantize({.x = codes, .scale = scale, .out = out, .table = table.view()});
  for (int64_t i = 0; i < kRows * kCols; ++i) {
    const int64_t byte = i / 2 % 256;
    const int64_t code = i % 2 == 0 ? byte & 15 : byte >> 4;
    EXPECT_EQ(out.view().as<float>()[i],
              table.view().as<float>()[code] * scale.view().as<float>()[i / 32])
        << i;
  }
}

// No value is further than half a step from its code. With a zero point, the rounding of the code
// and that of the zero point add up, and the ends of the range may be clipped by half a step.
TEST_P(CpuQuantize, ARoundTripIsWithinHalfAStep) {
  constexpr int64_t kRows = 12, kCols = 10 * kGroup;
  Tensor x(dtype(), {kRows, kCols}), codes(format().code, {kRows, kCols});
  Tensor back(DType::f32, {kRows, kCols});
  fill_normal(x, 7);
  const Index shape = scale_shape(granularity(), kRows, kCols);
  Tensor scale(DType::f32, shape), zero(DType::i32, shape);
  QuantizeArgs args{.x = x, .out = codes, .scale = scale, .zero_point = {}};
  if (format().has_zero_point) args.zero_point = zero;
  cpu::quantize(args);
  cpu::dequantize({.x = codes, .scale = scale, .zero_point = args.zero_point, .out = back});
  const Values xs = values_of(x), scales = values_of(scale);
  Values bound;
  for (size_t i = 0; i < xs.size(); ++i) {
    const int64_t at = static_cast<int64_t>(i);
    const double step = scales[scale_index(granularity(), at / kCols, at % kCols, kCols)];
    const bool is_fp8 = format().code == DType::e4m3 || format().code == DType::e5m2;
    const double unit = is_fp8 ? spacing(format().code, xs[i] / step) : 1.0;
    const double half_steps = format().has_zero_point ? 1.0 : 0.5;
    bound.push_back(step * unit * half_steps + 4.0 * kFloatUnit * std::fabs(xs[i]));
  }
  EXPECT_TRUE(all_close(values_of(back), xs, bound));
}

INSTANTIATE_TEST_SUITE_P(EveryFormat, CpuQuantize,
                         ::testing::Combine(::testing::ValuesIn(kFloatTypes),
                                            ::testing::ValuesIn(kFormats),
                                            ::testing::ValuesIn(kGranularities)),
                         case_name);

Values fixed_codes(DType code, const Values& x, double scale, std::optional<int> zero_point = {}) {
  const int64_t count = static_cast<int64_t>(x.size());
  const Tensor in = tensor_of(DType::f32, {1, count}, x);
  const Tensor scales = tensor_of(DType::f32, {1}, {scale});
  Tensor out(code, {1, count}), zero(DType::i32, {1});
  QuantizeArgs args{
      .x = in, .out = out, .scale = scales, .zero_point = {}, .mode = ScaleMode::fixed};
  if (zero_point) {
    *zero.view().as<int32_t>() = *zero_point;
    args.zero_point = zero;
  }
  cpu::quantize(args);
  return codes_of(out, zero_point.has_value());
}

TEST(CpuQuantizeFixed, TiesGoToEven) {
  const Values ties = {0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 3.5, 4.5};
  EXPECT_TRUE(all_equal(fixed_codes(DType::i8, ties, 1.0), {0, 2, 2, 0, -2, -2, 4, 4}));
  EXPECT_TRUE(all_equal(fixed_codes(DType::i4, ties, 1.0), {0, 2, 2, 0, -2, -2, 4, 4}));
  EXPECT_TRUE(all_equal(fixed_codes(DType::u8, ties, 1.0, 7), {7, 9, 9, 7, 5, 5, 11, 11}));
  EXPECT_TRUE(all_equal(fixed_codes(DType::e4m3, {17, 19, -17, 21}, 1.0), {16, 20, -16, 20}));
  EXPECT_TRUE(all_equal(fixed_codes(DType::e5m2, {9, 11, -9, 13}, 1.0), {8, 12, -8, 12}));
}

TEST(CpuQuantizeFixed, FiniteValuesSaturateAndFp8HasNanForTheRest) {
  // 3e38 / 0.5 is beyond float: infinite before it is a code.
  const Values wild = {1e6, -1e6, kInfinity, -kInfinity, 3e38, kNan};
  EXPECT_TRUE(all_equal(fixed_codes(DType::i8, wild, 0.5), {127, -127, 127, -127, 127, 0}));
  EXPECT_TRUE(all_equal(fixed_codes(DType::i4, wild, 0.5), {7, -7, 7, -7, 7, 0}));
  EXPECT_TRUE(all_equal(fixed_codes(DType::u8, wild, 0.5, 100), {255, 0, 255, 0, 255, 100}));
  EXPECT_TRUE(all_equal(fixed_codes(DType::i4, wild, 0.5, 3), {15, 0, 15, 0, 15, 3}));
  EXPECT_TRUE(all_equal(fixed_codes(DType::e4m3, wild, 0.5), {448, -448, kNan, kNan, kNan, kNan}));
  EXPECT_TRUE(
      all_equal(fixed_codes(DType::e5m2, wild, 0.5), {57344, -57344, kNan, kNan, kNan, kNan}));
}

TEST(CpuQuantizeFixed, AnyZeroPointAddsExactly) {
  for (int zero : {std::numeric_limits<int>::min(), -(1 << 25) - 1, (1 << 25) + 1,
                   std::numeric_limits<int>::max()}) {
    const double near = -static_cast<double>(zero);
    const double x = static_cast<float>(near);  // rounds by up to 64
    const double want = std::clamp(x + zero, 0.0, 255.0);
    EXPECT_TRUE(all_equal(fixed_codes(DType::u8, {x, 0.0}, 1.0, zero),
                          {want, std::clamp<double>(zero, 0.0, 255.0)}));
  }
}

TEST(CpuQuantizeFixed, TheEvenNibbleIsTheLowOne) {
  const Tensor x = tensor_of(DType::f32, {1, 4}, {1, -2, 7, -7}),
               scale = tensor_of(DType::f32, {1}, {1});
  Tensor out(DType::i4, {1, 4});
  cpu::quantize({.x = x, .out = out, .scale = scale, .zero_point = {}, .mode = ScaleMode::fixed});
  EXPECT_EQ(out.view().as<uint8_t>()[0], 0xe1);
  EXPECT_EQ(out.view().as<uint8_t>()[1], 0x97);
}

TEST(CpuQuantizeDynamic, NothingStillGetsAScale) {
  for (const auto& [shape, scale_shape] : {std::pair<Index, Index>{{0, 8}, {1}},
                                           {{0, 8}, {1, 8}},
                                           {{3, 0}, {3, 1}},
                                           {{3, 0}, {1, 1}}}) {
    Tensor x(DType::f32, shape), out(DType::u8, shape), zero(DType::i32, scale_shape);
    Tensor scale = tensor_of(DType::f32, scale_shape, {9.0});
    cpu::quantize({.x = x, .out = out, .scale = scale, .zero_point = zero});
    for (double value : values_of(scale)) EXPECT_EQ(value, 1.0);
    for (double value : values_of(zero)) EXPECT_EQ(value, 0.0);
  }
}

}  // namespace
}  // namespace tessera::testing
