// The matrix product on the CPU, for every type and every instruction set this CPU has, against
// sums in float64.
// SPDX-License-Identifier: MIT
#include "cpu/gemm.h"

#include <tuple>

#include "tests/core/threads.h"
#include "tests/cpu/tensors.h"

namespace tessera::testing {
namespace {

struct Mnk {
  int64_t m, n, k;
};

std::ostream& operator<<(std::ostream& out, const Mnk& shape) {
  return out << "m=" << shape.m << " n=" << shape.n << " k=" << shape.k;
}

// b as the values it stands for.
Values weight_of(const GemmArgs& args) {
  Values b = values_of(args.b.values);
  if (!args.b.scale) return b;
  const Values scale = values_of(*args.b.scale);
  const size_t per_scale = b.size() / std::max<size_t>(1, scale.size());
  for (size_t i = 0; i < b.size(); ++i) b[i] *= scale[i / per_scale];
  return b;
}

struct GemmReference {
  Values y;
  Values magnitude;  // sum |a| |b|
};

GemmReference reference(const GemmArgs& args) {
  const Values a = values_of(args.a), b = weight_of(args);
  const Values bias = args.bias ? values_of(*args.bias) : Values();
  const size_t m = static_cast<size_t>(args.a.size(0)), n = static_cast<size_t>(args.b.n());
  const size_t k = static_cast<size_t>(args.a.size(1));
  GemmReference result;
  for (size_t i = 0; i < m; ++i) {
    for (size_t j = 0; j < n; ++j) {
      double sum = 0.0, magnitude = 0.0;
      for (size_t l = 0; l < k; ++l) {
        sum += a[i * k + l] * b[j * k + l];
        magnitude += std::fabs(a[i * k + l] * b[j * k + l]);
      }
      result.y.push_back(sum + (bias.empty() ? 0.0 : bias[j]));
      result.magnitude.push_back(magnitude);
    }
  }
  return result;
}

// The reference rounded once to the type of out.
Values rounded(const Values& y, const TensorView& out) {
  Tensor stored(out.dtype, {out.size(0), out.size(1)});
  if (!y.empty()) set_values(stored, y);
  return values_of(stored);
}

using Param = std::tuple<cpu::SimdLevel, DType>;

class CpuGemm : public ::testing::TestWithParam<Param> {
 protected:
  static DType type() { return std::get<DType>(GetParam()); }
  static void run(const GemmArgs& args) { cpu::gemm(args, std::get<cpu::SimdLevel>(GetParam())); }

  static void expect_exact(const GemmArgs& args) {
    run(args);
    EXPECT_TRUE(all_equal(values_of(args.out), rounded(reference(args).y, args.out)));
  }

  // The bound of the public header: 1 ulp, and k * 2^-24 * sum |a| |b|.
  static void expect_close(const GemmArgs& args) {
    run(args);
    const GemmReference want = reference(args);
    Values bound;
    for (size_t i = 0; i < want.y.size(); ++i) {
      const double k = static_cast<double>(args.a.size(1));
      const double sum_error = k * kFloatUnit * want.magnitude[i];
      bound.push_back(sum_error + spacing(args.out.dtype, std::fabs(want.y[i]) + sum_error));
    }
    EXPECT_TRUE(all_close(values_of(args.out), want.y, bound));
  }
};

std::string param_name(const ::testing::TestParamInfo<Param>& info) {
  return std::string(cpu::name(std::get<0>(info.param))) + "_" +
         std::string(name(std::get<1>(info.param)));
}

// Shapes with every kind of remainder: no rows, one row, partial tiles of 6 or 3 by 4, whole
// vectors of 4, 8 and 16 lanes with every tail, more rows than are widened at once.
constexpr Mnk kShapes[] = {{0, 3, 5},    {3, 0, 5},      {3, 5, 0},     {1, 1, 1},    {1, 4, 16},
                           {2, 3, 15},   {3, 2, 17},     {4, 9, 31},    {5, 5, 3},    {6, 4, 32},
                           {7, 13, 64},  {8, 6, 7},      {13, 1, 100},  {1, 70, 384}, {25, 31, 129},
                           {97, 33, 48}, {64, 128, 127}, {300, 5, 4096}};

// Integers in [-4, 4]: every partial sum fits in 24 bits, so sums in float are exact in any order
// and both sides round once.
TEST_P(CpuGemm, IsExactOnSmallIntegers) {
  for (const Mnk& shape : kShapes) {
    SCOPED_TRACE(shape);
    Tensor a(type(), {shape.m, shape.k}), b(type(), {shape.n, shape.k}), bias(type(), {shape.n});
    Tensor out(type(), {shape.m, shape.n}), wide(DType::f32, {shape.m, shape.n});
    fill_integers(a, 1, -4, 4);
    fill_integers(b, 2, -4, 4);
    fill_integers(bias, 3, -100, 100);
    fill(out, [] { return 77.0; });
    expect_exact({.a = a, .b = b, .out = out});
    expect_exact({.a = a, .b = b, .bias = bias, .out = wide});
  }
}

TEST_P(CpuGemm, IsExactOnInt8CodesAndScalesThatArePowersOfTwo) {
  for (const Mnk& shape : kShapes) {
    for (int64_t group : {int64_t{0}, shape.k, int64_t{1}, int64_t{5}, int64_t{16}, int64_t{43}}) {
      if (group > 0 && shape.k % group != 0) continue;
      if (shape.k > 1000 && group > 0 && group < 16) continue;
      SCOPED_TRACE(::testing::Message() << shape << " group=" << group);
      Tensor a(type(), {shape.m, shape.k}), b(DType::i8, {shape.n, shape.k}),
          bias(type(), {shape.n});
      const Index per_row = {shape.n}, per_group = {shape.n, group > 0 ? shape.k / group : 0};
      Tensor scale(DType::f32, group == 0 ? per_row : per_group),
          out(DType::f32, {shape.m, shape.n});
      fill_integers(a, 1, -2, 2);
      fill_integers(b, 2, -16, 16);
      fill_integers(bias, 3, -100, 100);
      std::mt19937_64 random(4);
      fill(scale, [&] { return std::ldexp(1.0, static_cast<int>(random() % 4) - 2); });
      expect_exact({.a = a, .b = Weight{.values = b, .scale = scale}, .bias = bias, .out = out});
    }
  }
}

TEST_P(CpuGemm, TakesTheLowestCode) {
  const Tensor a = tensor_of(type(), {1, 2}, {1.0, 2.0});
  const Tensor b = tensor_of(DType::i8, {1, 2}, {-128.0, 127.0});
  const Tensor scale = tensor_of(DType::f32, {1}, {0.5}), out(DType::f32, {1, 1});
  run({.a = a, .b = Weight{.values = b, .scale = scale}, .out = out});
  EXPECT_EQ(values_of(out)[0], 63.0);
}

TEST_P(CpuGemm, IsCloseOnNormalData) {
  for (const Mnk& shape : {Mnk{3, 7, 1}, Mnk{5, 9, 33}, Mnk{17, 21, 384}, Mnk{2, 11, 5000}}) {
    SCOPED_TRACE(shape);
    Tensor a(type(), {shape.m, shape.k}), b(type(), {shape.n, shape.k}), bias(type(), {shape.n});
    Tensor out(type(), {shape.m, shape.n}), wide(DType::f32, {shape.m, shape.n});
    fill_normal(a, 1);
    fill_normal(b, 2, 0.5);
    fill_normal(bias, 3);
    expect_close({.a = a, .b = b, .out = out});
    expect_close({.a = a, .b = b, .bias = bias, .out = wide});
  }
}

TEST_P(CpuGemm, IsCloseOnNormalDataWithInt8Codes) {
  constexpr Mnk kShape = {9, 13, 192};
  Tensor a(type(), {kShape.m, kShape.k}), b(DType::i8, {kShape.n, kShape.k});
  Tensor out(type(), {kShape.m, kShape.n}), wide(DType::f32, {kShape.m, kShape.n});
  fill_normal(a, 1);
  fill_integers(b, 2, -127, 127);
  for (int64_t groups : {1, 2, 6, 64}) {
    SCOPED_TRACE(groups);
    Tensor scale(DType::f32, {kShape.n, groups});
    std::mt19937_64 random(3);
    std::uniform_real_distribution<double> uniform(0.001, 0.02);
    fill(scale, [&] { return uniform(random); });
    expect_close({.a = a, .b = Weight{.values = b, .scale = scale}, .out = out});
    expect_close({.a = a, .b = Weight{.values = b, .scale = scale}, .out = wide});
  }
}

// A row of a gives the same bits at any place in any batch, with any number of threads.
class CpuGemmRow : public CpuGemm {
 protected:
  static void expect_rows_stand_alone(const GemmArgs& args) {
    const int64_t m = args.a.size(0), n = args.b.n();
    const Threads one(1);
    run(args);
    for (int count : {1, 2, 5}) {
      const Threads threads(count);
      for (int64_t rows : {1, 2, 3, 4, 5, 6, 8, 13, 37}) {
        for (int64_t begin = 0; begin + rows <= m; begin += std::max<int64_t>(1, rows / 2)) {
          const Tensor part(args.out.dtype, {rows, n});
          GemmArgs some = args;
          some.a = args.a.slice(0, begin, begin + rows);
          some.out = part;
          run(some);
          const TensorView want = args.out.slice(0, begin, begin + rows);
          ASSERT_EQ(
              std::memcmp(part.view().data, want.data, static_cast<size_t>(part.size_bytes())), 0)
              << rows << " rows from " << begin << ", " << count << " threads";
        }
      }
    }
  }
};

TEST_P(CpuGemmRow, HasTheSameBitsAloneAndInAnyBatch) {
  for (const Mnk& shape : {Mnk{37, 70, 203}, Mnk{37, 9, 48}, Mnk{13, 601, 208}}) {
    SCOPED_TRACE(shape);
    Tensor a(type(), {shape.m, shape.k}), b(type(), {shape.n, shape.k}), bias(type(), {shape.n});
    Tensor out(DType::f32, {shape.m, shape.n});
    fill_normal(a, 1);
    fill_normal(b, 2);
    fill_normal(bias, 3);
    expect_rows_stand_alone({.a = a, .b = b, .bias = bias, .out = out});
  }
}

TEST_P(CpuGemmRow, HasTheSameBitsAloneAndInAnyBatchWithInt8Codes) {
  constexpr Mnk kShape = {37, 70, 210};
  Tensor a(type(), {kShape.m, kShape.k}), b(DType::i8, {kShape.n, kShape.k});
  Tensor out(DType::f32, {kShape.m, kShape.n});
  fill_normal(a, 1);
  fill_integers(b, 2, -127, 127);
  for (int64_t groups : {1, 7}) {
    SCOPED_TRACE(groups);
    Tensor scale(DType::f32, {kShape.n, groups});
    fill_normal(scale, 3);
    expect_rows_stand_alone({.a = a, .b = Weight{.values = b, .scale = scale}, .out = out});
  }
}

TEST_P(CpuGemm, TakesRowsThatLieApartAndWritesNothingBetweenThem) {
  GappedRows a(type(), 9, 50, 13), b(type(), 11, 50, 3), out(type(), 9, 11, 5);
  fill_integers(a.view(), 1, -4, 4);
  fill_integers(b.view(), 2, -4, 4);
  expect_exact({.a = a.view(), .b = b.view(), .out = out.view()});
  EXPECT_TRUE(out.gaps_untouched());
}

// All m rows of a are the same memory, and b is read from its last row to its first.
TEST_P(CpuGemm, TakesRowsWithStrideZeroAndBackwards) {
  Tensor a(type(), {1, 32}), b(type(), {6, 32}), out(type(), {300, 6});
  fill_integers(a, 1, -4, 4);
  fill_integers(b, 2, -4, 4);
  GemmArgs args{.a = a, .b = b, .out = out};
  args.a.shape[0] = 300;
  args.a.strides[0] = 0;
  const size_t row_bytes = static_cast<size_t>(storage_bytes(type(), 32));
  args.b.values.data = b.view().as<char>() + 5 * row_bytes;
  args.b.values.strides[0] = -32;
  expect_exact(args);
}

TEST_P(CpuGemm, NanAndInfinityReachTheirRowsAndColumnsOnly) {
  for (int64_t k : {32, 37}) {  // the last element is in a whole vector, or in a tail
    SCOPED_TRACE(k);
    Tensor a(type(), {8, k}), b(type(), {9, k}), out(type(), {8, 9});
    fill(a, [] { return 1.0; });
    fill(b, [] { return 1.0; });
    store_from_float(a, Index{2, k - 1}, std::numeric_limits<float>::quiet_NaN());
    store_from_float(a, Index{5, k - 1}, std::numeric_limits<float>::infinity());
    store_from_float(b, Index{7, k - 1}, -std::numeric_limits<float>::infinity());
    run({.a = a, .b = b, .out = out});
    Values want;
    for (size_t i = 0; i < 8; ++i) {
      for (size_t j = 0; j < 9; ++j) {
        const double plain = i == 5 ? kInfinity : static_cast<double>(k);
        want.push_back(i == 2 ? kNan : j == 7 ? -kInfinity : plain);
      }
    }
    EXPECT_TRUE(all_close(values_of(out), want, Values(want.size(), 1e-9)));
  }
}

// A group that does not fill its last vector is padded with zeros. They must not be multiplied by
// values of the next group, because 0 times infinity is NaN.
TEST_P(CpuGemm, AnInfinityStaysInItsGroup) {
  Tensor a(type(), {2, 30}), b(DType::i8, {5, 30}), scale(DType::f32, {5, 3}),
      out(DType::f32, {2, 5});
  fill(a, [] { return 1.0; });
  fill(b, [] { return 2.0; });
  fill(scale, [] { return 0.5; });
  store_from_float(a, Index{1, 10}, std::numeric_limits<float>::infinity());
  run({.a = a, .b = Weight{.values = b, .scale = scale}, .out = out});
  EXPECT_TRUE(all_equal(values_of(out.view().slice(0, 0, 1)), Values(5, 30.0)));
  EXPECT_TRUE(all_equal(values_of(out.view().slice(0, 1, 2)), Values(5, kInfinity)));
}

TEST_P(CpuGemm, OverNoKItGivesTheBias) {
  Tensor a(type(), {3, 0}), b(DType::i8, {5, 0}), bias(type(), {5}), out(type(), {3, 5});
  Tensor scale = tensor_of(DType::f32, {5}, {kInfinity});
  fill_integers(bias, 1, -9, 9);
  fill(out, [] { return 77.0; });
  expect_exact({.a = a, .b = Weight{.values = b, .scale = scale}, .bias = bias, .out = out});
}

// Calls reuse the scratch memory of earlier ones: a short call after a long one, then a long one
// again.
TEST_P(CpuGemm, CallsOfDifferentSizesDoNotDisturbEachOther) {
  for (const Mnk& shape : {Mnk{40, 8, 500}, Mnk{2, 8, 3}, Mnk{41, 8, 501}, Mnk{40, 8, 17}}) {
    SCOPED_TRACE(shape);
    Tensor a(type(), {shape.m, shape.k}), b(type(), {shape.n, shape.k});
    Tensor out(DType::f32, {shape.m, shape.n});
    fill_integers(a, 1, -4, 4);
    fill_integers(b, 2, -4, 4);
    expect_exact({.a = a, .b = b, .out = out});
  }
}

const auto kEveryBuild =
    ::testing::Combine(::testing::ValuesIn(cpu::simd_levels().begin(), cpu::simd_levels().end()),
                       ::testing::ValuesIn(kFloatTypes));
INSTANTIATE_TEST_SUITE_P(EveryBuild, CpuGemm, kEveryBuild, param_name);
INSTANTIATE_TEST_SUITE_P(EveryBuild, CpuGemmRow, kEveryBuild, param_name);

TEST(CpuGemmDefault, IsTheBestBuildOfThisCpu) {
  Tensor a(DType::bf16, {3, 100}), b(DType::bf16, {7, 100});
  Tensor chosen(DType::f32, {3, 7}), best(DType::f32, {3, 7});
  fill_normal(a, 1);
  fill_normal(b, 2);
  cpu::gemm({.a = a, .b = b, .out = chosen});
  cpu::gemm({.a = a, .b = b, .out = best}, cpu::simd_levels().back());
  EXPECT_TRUE(same_bytes(chosen, best));
}

}  // namespace
}  // namespace tessera::testing
