// Products with every quantised form of a weight, against a dense product with the same values.
// Integers and scales that are powers of two: every value and every sum is exact in float.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>

#include "cpu/gemm.h"
#include "tests/cpu/tensors.h"

namespace tessera::testing {
namespace {

using cpu::SimdLevel;

struct Form {
  DType codes;
  Index scale;  // its shape
  int64_t rows_per_scale = 1;
  int64_t group = 0;
  bool has_zero_point = false;
};
constexpr int64_t kM = 5, kN = 11, kK = 36;

std::ostream& operator<<(std::ostream& out, const Form& form) {
  out << name(form.codes) << " scale [";
  for (const int64_t size : form.scale) out << size << " ";
  return out << "] rows " << form.rows_per_scale << " group " << form.group
             << (form.has_zero_point ? " with zero points" : "");
}

const Form kForms[] = {
    {DType::i8, {kN}},
    {DType::i8, {kN, 3}},
    {DType::i8, {1}},
    {DType::i8, {3, 2}, 4, 20},  // the last block has 3 rows and 16 columns
    {DType::u8, {kN}, 1, 0, true},
    {DType::u8, {kN, 6}, 1, 0, true},
    {DType::i4, {kN}},
    {DType::i4, {kN, 9}},
    {DType::i4, {kN, 2}, 1, 18, true},
    {DType::e4m3, {1}},
    {DType::e4m3, {kN}},
    {DType::e4m3, {2, 3}, 8, 16},
    {DType::e5m2, {kN, 1}},
};

// A weight of this form, and the values it stands for.
struct Case {
  Tensor values, scale, zero_point, dense;
  Weight weight;

  explicit Case(const Form& form)
      : values(form.codes, {kN, kK}),
        scale(DType::f32, form.scale),
        zero_point(DType::i32, form.scale),
        dense(DType::f32, {kN, kK}) {
    const bool has_unsigned = form.has_zero_point;
    std::mt19937_64 random(7);
    const auto draw = [&](int low, int high) {
      return low + static_cast<int>(random() % static_cast<uint64_t>(high - low + 1));
    };
    fill(scale, [&] { return std::ldexp(1.0, draw(-2, 1)); });
    fill(zero_point, [&] { return draw(1, 7); });
    // With a zero point i4 codes are unsigned, but the view reads codes 8 to 15 as -8 to -1.
    const bool wraps = form.codes == DType::i4 && has_unsigned;
    const int64_t across = form.scale.size() == 2 ? form.scale[1] : 1;
    const int64_t group = form.group > 0 ? form.group : kK / across;
    for (int64_t row = 0; row < kN; ++row) {
      for (int64_t col = 0; col < kK; ++col) {
        const int code = has_unsigned ? draw(0, 15) : draw(-7, 7);
        const int64_t at[] = {row, col};
        store_from_float(values, at, static_cast<float>(wraps && code > 7 ? code - 16 : code));
        int64_t index = row / form.rows_per_scale * across + col / group;
        if (form.scale.size() == 1) index = form.scale[0] == 1 ? 0 : row;
        const int zero = has_unsigned ? zero_point.view().as<int32_t>()[index] : 0;
        store_from_float(dense, at,
                         static_cast<float>(code - zero) * scale.view().as<float>()[index]);
      }
    }
    weight = {.values = values,
              .scale = scale,
              .rows_per_scale = form.rows_per_scale,
              .group = form.group};
    if (has_unsigned) weight.zero_point = zero_point;
  }
};

TEST(CpuGemmWeight, EveryQuantisedFormIsTheProductWithItsValues) {
  for (const Form& form : kForms) {
    SCOPED_TRACE(form);
    const Case c(form);
    for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
      Tensor a(type, {kM, kK}), bias(type, {kN}), out(DType::f32, {kM, kN});
      Tensor wide_a(DType::f32, {kM, kK}), wide_bias(DType::f32, {kN}), want(DType::f32, {kM, kN});
      fill_integers(a, 1, -4, 4);
      fill_integers(bias, 2, -9, 9);
      set_values(wide_a, values_of(a));
      set_values(wide_bias, values_of(bias));
      cpu::gemm({.a = a, .b = c.weight, .bias = bias, .out = out});
      cpu::gemm({.a = wide_a, .b = c.dense, .bias = wide_bias, .out = want});
      EXPECT_TRUE(all_equal(values_of(out), values_of(want)));
    }
  }
}

TEST(CpuGemmWeight, TheEpilogueFollowsAQuantisedProduct) {
  const Case c({DType::i4, {kN, 2}, 1, 18, true});
  Tensor a(DType::bf16, {kM, kK}), residual(DType::bf16, {kM, kN}), out(DType::bf16, {kM, kN});
  Tensor dense(DType::bf16, {kN, kK}), want(DType::bf16, {kM, kN});
  fill_integers(a, 1, -4, 4);
  fill_integers(residual, 2, -9, 9);
  set_values(dense, values_of(c.dense));
  cpu::gemm(
      {.a = a, .b = c.weight, .out = out, .activation = Activation::relu, .residual = residual});
  cpu::gemm(
      {.a = a, .b = dense, .out = want, .activation = Activation::relu, .residual = residual});
  EXPECT_TRUE(all_equal(values_of(out), values_of(want)));
}

// A weight of random codes with arbitrary scales, and the values it stands for in double.
struct RandomCase {
  int64_t m, n, k;
  Tensor values, scale, zero_point, a, bias;
  std::vector<double> dense;
  Weight weight;

  RandomCase(std::mt19937_64& random, DType codes, DType type, int64_t group, bool has_zero_point)
      : m(1 + static_cast<int64_t>(random() % 9)),
        n(1 + static_cast<int64_t>(random() % 23)),
        k((group == 0 ? 2 : group) * (1 + static_cast<int64_t>(random() % 7))),
        values(codes, {n, k}),
        scale(DType::f32, {n, group == 0 ? 1 : k / group}),
        zero_point(DType::i32, {n, group == 0 ? 1 : k / group}),
        a(type, {m, k}),
        bias(type, {n}) {
    for (int64_t i = 0; i < values.size_bytes(); ++i) {
      const uint64_t num_numbers = codes == DType::e4m3 ? 0x7f : 0x7c;  // of either sign
      const bool is_fp8 = codes == DType::e4m3 || codes == DType::e5m2;
      const uint64_t code = is_fp8 ? random() % num_numbers + random() % 2 * 0x80 : random() % 256;
      values.view().as<uint8_t>()[i] = static_cast<uint8_t>(code);
    }
    std::normal_distribution<double> normal;
    fill(scale, [&] { return normal(random) * 0.01; });
    fill(zero_point, [&] { return static_cast<double>(random() % 16); });
    fill(a, [&] { return normal(random); });
    fill(bias, [&] { return normal(random); });
    weight = {.values = values, .scale = scale};
    if (has_zero_point) weight.zero_point = zero_point;
    const Values code_values = values_of(values);
    const int64_t groups = group == 0 ? 1 : k / group;
    for (int64_t i = 0; i < n * k; ++i) {
      const int64_t at = i / k * groups + i % k / (k / groups);
      double code = code_values[static_cast<size_t>(i)];
      if (has_zero_point) {
        if (codes == DType::i4 && code < 0) code += 16;  // unsigned with a zero point
        code -= zero_point.view().as<int32_t>()[at];
      }
      dense.push_back(code * double{scale.view().as<float>()[at]});
    }
  }
};

// Few rows of a read the codes as they are, many their dequantised floats: the bits are the same.
TEST(CpuGemmWeight, Fp8HasTheSameBitsForFewAndForManyRows) {
  constexpr int64_t m = 40, n = 21, k = 96;
  struct Fp8Form {
    std::vector<int64_t> scale;
    int64_t rows_per_scale = 1;
  };
  const Fp8Form forms[] = {{{1}}, {{n}}, {{n, 2}}, {{n, 6}}, {{3, 2}, 8}, {{3, 1}, 8}};
  for (const DType codes : {DType::e4m3, DType::e5m2}) {
    for (const Fp8Form& form : forms) {
      std::mt19937_64 random(3);
      Tensor values(codes, {n, k}), scale(DType::f32, form.scale), a(DType::bf16, {m, k});
      for (int64_t i = 0; i < n * k; ++i) {  // all codes in turn, but what is not finite
        const int64_t number = i % (codes == DType::e4m3 ? 0x7f : 0x7c);
        values.view().as<uint8_t>()[i] = static_cast<uint8_t>(number + i / 7 % 2 * 0x80);
      }
      values.view().as<uint8_t>()[4 * k + 17] = 0xff;  // NaN in row 4
      values.view().as<uint8_t>()[n * k - 1] = 0x7f;   // and in the last one
      std::normal_distribution<double> normal;
      fill(scale, [&] { return normal(random) * 0.01; });
      fill(a, [&] { return normal(random); });
      const Weight weight{.values = values, .scale = scale, .rows_per_scale = form.rows_per_scale};
      for (const SimdLevel level : cpu::simd_levels()) {
        SCOPED_TRACE(::testing::Message() << name(codes) << " scales " << form.scale.size() << " "
                                          << form.scale[0] << " level " << static_cast<int>(level));
        const Tensor many(DType::f32, {m, n}), few(DType::f32, {m, n});
        cpu::gemm({.a = a, .b = weight, .out = many}, level);
        for (int64_t row = 0; row < m; row += 5) {
          cpu::gemm({.a = a.view().slice(0, row, row + 5),
                     .b = weight,
                     .out = few.view().slice(0, row, row + 5)},
                    level);
        }
        for (int64_t i = 0; i < m * n; ++i) {
          const float x = many.view().as<float>()[i], y = few.view().as<float>()[i];
          const bool is_nan = i % n == 4 || i % n == n - 1;
          ASSERT_EQ(std::isnan(x), is_nan) << i;
          ASSERT_TRUE(is_nan ? std::isnan(y) : x == y) << i << ": " << x << " and " << y;
        }
      }
    }
  }
}

// Few rows of a read the codes as they lie, many unpack them first: the bits are the same.
TEST(CpuGemmWeight, Int4HasTheSameBitsForFewAndForManyRows) {
  struct Form {
    int64_t n, k, group;
    bool has_zero_point;
  };
  const Form forms[] = {{21, 96, 96, false}, {24, 384, 128, false}, {22, 384, 128, true},
                        {19, 320, 32, true}, {8, 264, 24, false},   {5, 1100, 1100, true},
                        {37, 512, 64, true}, {4, 130, 130, false},  {300, 2048, 256, false}};
  for (const Form& form : forms) {
    for (const DType type : {DType::bf16, DType::f16, DType::f32}) {
      constexpr int64_t m = 43;  // tiles of 4, 2 and 1 rows
      const int64_t n = form.n, k = form.k, groups = k / form.group;
      std::mt19937_64 random(3);
      Tensor values(DType::i4, {n, k}), scale(DType::f32, {n, groups}), a(type, {m, k});
      Tensor zero_point(DType::i32, {n, groups}), bias(type, {n});
      for (int64_t i = 0; i < n * k / 2; ++i) {
        values.view().as<uint8_t>()[i] = static_cast<uint8_t>(random());
      }
      fill_integers(zero_point, 5, 0, 15);
      fill_normal(scale, 6, 0.01);
      fill_normal(bias, 7);
      // Elements far apart in size share a lane.
      std::normal_distribution<double> normal;
      fill(a, [&] { return normal(random) * std::ldexp(1.0, -static_cast<int>(random() % 14)); });
      store_from_float(a, Index{7, 3}, std::numeric_limits<float>::infinity());
      Weight weight{.values = values, .scale = scale};
      if (form.has_zero_point) weight.zero_point = zero_point;
      for (const SimdLevel level : cpu::simd_levels()) {
        for (const DType out : {type, DType::f32}) {
          const Tensor many(out, {m, n}), few(out, {m, n});
          cpu::gemm({.a = a, .b = weight, .bias = bias, .out = many}, level);
          for (int64_t row = 0; row < m; ++row) {
            cpu::gemm({.a = a.view().slice(0, row, row + 1),
                       .b = weight,
                       .bias = bias,
                       .out = few.view().slice(0, row, row + 1)},
                      level);
          }
          EXPECT_TRUE(same_bytes(many, few))
              << name(type) << ", n " << n << ", k " << k << ", group " << form.group;
        }
      }
    }
  }
}

// The bound of gemm.h, with the rounding of a weight to float beside it.
TEST(CpuGemmWeight, RandomFormsAreWithinTheStatedErrorOfAProductInDouble) {
  std::mt19937_64 random(2026);
  for (int trial = 0; trial < 300; ++trial) {
    const DType kCodes[] = {DType::i4, DType::i4, DType::i8, DType::u8, DType::e4m3, DType::e5m2};
    const DType kTypes[] = {DType::f32, DType::f16, DType::bf16};
    const int64_t kGroups[] = {0, 8, 24, 32, 64, 128};
    const DType codes = kCodes[random() % 6], type = kTypes[random() % 3];
    const int64_t group = kGroups[random() % 6];
    const bool has_zero_point = codes == DType::u8 || (codes == DType::i4 && random() % 2 == 0);
    const RandomCase c(random, codes, type, group, has_zero_point);
    SCOPED_TRACE(::testing::Message() << "trial " << trial << ": " << name(codes) << " by "
                                      << name(type) << ", group " << group << ", m " << c.m << " n "
                                      << c.n << " k " << c.k << " zero " << has_zero_point);
    const Values a = values_of(c.a), bias = values_of(c.bias);
    for (const SimdLevel level : cpu::simd_levels()) {
      const Tensor out(DType::f32, {c.m, c.n}), alone(DType::f32, {1, c.n});
      cpu::gemm({.a = c.a, .b = c.weight, .bias = c.bias, .out = out}, level);
      const Values got = values_of(out);
      for (int64_t i = 0; i < c.m * c.n; ++i) {
        double want = bias[static_cast<size_t>(i % c.n)], magnitude = 0;
        for (int64_t j = 0; j < c.k; ++j) {
          const double product = a[static_cast<size_t>(i / c.n * c.k + j)] *
                                 c.dense[static_cast<size_t>(i % c.n * c.k + j)];
          want += product;
          magnitude += std::abs(product);
        }
        const double bound = static_cast<double>(c.k + 2) * 0x1p-22 * magnitude +
                             0x1p-22 * std::abs(bias[static_cast<size_t>(i % c.n)]);
        ASSERT_LE(std::abs(got[static_cast<size_t>(i)] - want), bound) << "element " << i;
      }
      cpu::gemm(
          {.a = c.a.view().slice(0, c.m - 1, c.m), .b = c.weight, .bias = c.bias, .out = alone},
          level);
      const Values last(got.end() - c.n, got.end());
      ASSERT_TRUE(all_equal(values_of(alone), last)) << "a row alone has other bits";
    }
  }
}

// A 4-bit weight [16, 256] in groups of 32 with scales of 1, and 5 rows of a.
struct NibbleCase {
  static constexpr int64_t kRows = 5, kOut = 16, kIn = 256;
  Tensor values{DType::i4, {kOut, kIn}}, scale{DType::f32, {kOut, kIn / 32}};
  Tensor zero_point{DType::i32, {kOut, kIn / 32}}, a{DType::bf16, {kRows, kIn}};
  std::vector<double> dense;  // [kOut, kIn]

  explicit NibbleCase(int zero) {
    std::mt19937_64 random(11);
    fill(scale, [] { return 1.0; });
    fill(zero_point, [&] { return zero; });
    for (int64_t i = 0; i < values.size_bytes(); ++i) {
      values.view().as<uint8_t>()[i] = static_cast<uint8_t>(random());
    }
    for (int64_t i = 0; i < kOut * kIn; ++i) {
      dense.push_back((values.view().as<uint8_t>()[i / 2] >> 4 * (i % 2) & 15) - zero);
    }
    std::normal_distribution<double> normal;
    fill(a, [&] { return normal(random); });
  }
  Weight weight() const { return {.values = values, .scale = scale, .zero_point = zero_point}; }
};

TEST(CpuGemmWeight, ARowOfNibblesThatIsNotFiniteChangesNoOther) {
  const NibbleCase c(7);
  const Tensor want(DType::f32, {c.kRows, c.kOut}), got(DType::f32, {c.kRows, c.kOut});
  for (const SimdLevel level : cpu::simd_levels()) {
    cpu::gemm({.a = c.a, .b = c.weight(), .out = want}, level);
    const Tensor a(DType::bf16, {c.kRows, c.kIn});
    set_values(a, values_of(c.a));
    const int64_t at[] = {2, 77};
    store_from_float(a, at, INFINITY);
    cpu::gemm({.a = a, .b = c.weight(), .out = got}, level);
    const Values all = values_of(got), before = values_of(want);
    for (int64_t i = 0; i < c.kRows * c.kOut; ++i) {
      const auto index = static_cast<size_t>(i);
      if (i / c.kOut != 2) {
        ASSERT_EQ(all[index], before[index]) << i;
        continue;
      }
      const double weight = c.dense[static_cast<size_t>(i % c.kOut * c.kIn + 77)];
      ASSERT_FALSE(std::isfinite(all[index])) << i;
      if (weight != 0) {
        ASSERT_EQ(all[index], weight * INFINITY) << i;
      }
    }
  }
}

// Elements far below the largest of their eight lose at most 2^-23 of it.
TEST(CpuGemmWeight, NibblesTakeValuesOfAnyRange) {
  for (const int zero : {8, 0, 15, 16, 2047}) {
    const NibbleCase c(zero);
    std::mt19937_64 random(5);
    fill(c.a,
         [&] { return std::ldexp(1.0 + 0.5 * double(random() % 2), int(random() % 50) - 25); });
    const Values a = values_of(c.a);
    const Tensor out(DType::f32, {c.kRows, c.kOut});
    for (const SimdLevel level : cpu::simd_levels()) {
      cpu::gemm({.a = c.a, .b = c.weight(), .out = out}, level);
      for (int64_t i = 0; i < c.kRows * c.kOut; ++i) {
        double want = 0, bound = 0;
        for (int64_t j = 0; j < c.kIn; ++j) {
          const auto row = a.begin() + i / c.kOut * c.kIn;
          const double weight = c.dense[static_cast<size_t>(i % c.kOut * c.kIn + j)];
          const double largest = *std::max_element(row + j / 8 * 8, row + j / 8 * 8 + 8);
          want += row[j] * weight;
          bound += std::abs(weight) * (c.kIn * 0x1p-22 * row[j] + 0x1p-23 * largest);
        }
        ASSERT_LE(std::abs(values_of(out)[static_cast<size_t>(i)] - want), bound) << i << zero;
      }
    }
  }
}

}  // namespace
}  // namespace tessera::testing
