// Products with a weight whose 4-bit codes are indices of a table of 16 values: exact where these
// are integers or e2m1, and within the stated error of a product in double where they are not.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>

#include "cpu/gemm.h"
#include "tests/cpu/tensors.h"

namespace tessera::testing {
namespace {

using cpu::SimdLevel;

int code_at(const TensorView& codes, int64_t row, int64_t col) {
  const int64_t at = row * codes.stride(0) + col;
  return codes.as<uint8_t>()[at / 2] >> 4 * (at % 2) & 15;
}

// Random codes [n, k] under a table, with scales by group (0: by row); `next_scale` makes one.
struct TableCase {
  int64_t n, k, groups;
  Tensor codes, scale, table{DType::f32, {kTableSize}};

  TableCase(int64_t n_, int64_t k_, int64_t group, const Values& values,
            const std::function<double(std::mt19937_64&)>& next_scale)
      : n(n_),
        k(k_),
        groups(group == 0 ? 1 : k_ / group),
        codes(DType::i4, {n_, k_}),
        scale(DType::f32, {n_, groups}) {
    std::mt19937_64 random(static_cast<uint64_t>(31 * n + k + group));
    for (int64_t i = 0; i < codes.size_bytes(); ++i) {
      codes.view().as<uint8_t>()[i] = static_cast<uint8_t>(random());
    }
    set_values(table, values);
    fill(scale, [&] { return next_scale(random); });
  }

  Weight weight() const { return {.values = codes, .scale = scale.view(), .table = table.view()}; }
  double value(int64_t row, int64_t col) const {
    const double number = table.view().as<float>()[code_at(codes, row, col)];
    return number * double{scale.view().as<float>()[row * groups + col / (k / groups)]};
  }
  Tensor dense() const {
    Tensor floats(DType::f32, {n, k});
    for (int64_t i = 0; i < n * k; ++i) {
      floats.view().as<float>()[i] = static_cast<float>(value(i / k, i % k));
    }
    return floats;
  }
};

// Far from the codes' own order, and with neighbours of both signs.
const Values kIntegers = {3, -8, 0, 5, -1, 7, -6, 2, -4, 1, 6, -7, 4, -2, -5, -3};
// Out of order, of both signs, and exact in no 16-bit type.
Values uneven_values() {
  Values values;
  for (int i = 0; i < kTableSize; ++i) values.push_back(std::sin(0.9 * i + 0.3));
  return values;
}

double power_of_two(std::mt19937_64& random) {
  return std::ldexp(1.0, static_cast<int>(random() % 4) - 2);
}

// Integers and powers of two: every value and every sum is exact in float, in any order.
TEST(CpuGemmTable, IsExactOnIntegers) {
  struct Size {
    int64_t n, k, group;
  };
  // k that ends within a block of the tiles, groups that are not whole words of codes, and edges.
  for (const Size& size : {Size{11, 36, 0}, Size{4, 128, 32}, Size{9, 160, 32}, Size{16, 256, 64},
                           Size{5, 384, 128}, Size{7, 36, 18}, Size{3, 2, 0}, Size{12, 96, 8}}) {
    const TableCase c(size.n, size.k, size.group, kIntegers, power_of_two);
    const Tensor dense = c.dense();
    for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
      for (const int64_t m : {1, 2, 5, 40}) {
        const Tensor a(type, {m, c.k}), wide_a(DType::f32, {m, c.k});
        fill_integers(a, 1, -4, 4);
        set_values(wide_a, values_of(a));
        const Tensor got(DType::f32, {m, c.n}), want(DType::f32, {m, c.n});
        for (const SimdLevel level : cpu::simd_levels()) {
          SCOPED_TRACE(::testing::Message()
                       << name(type) << " m " << m << " n " << c.n << " k " << c.k << " group "
                       << size.group << " level " << static_cast<int>(level));
          cpu::gemm({.a = a, .b = c.weight(), .out = got}, level);
          cpu::gemm({.a = wide_a, .b = dense, .out = want}, level);
          ASSERT_TRUE(all_equal(values_of(got), values_of(want)));
        }
      }
    }
  }
}

// One row by hand: codes 0 to 15 of e2m1 in the first group, 15 to 0 in the second.
TEST(CpuGemmTable, MultipliesByTheFloatsOfMxfp4) {
  constexpr int64_t k = 64;
  Tensor codes(DType::i4, {1, k}), scale(DType::f32, {1, 2}), table(DType::f32, {kTableSize});
  const Tensor a(DType::bf16, {1, k}), out(DType::f32, {1, 1});
  std::fill_n(codes.view().as<uint8_t>(), k / 2, uint8_t{0});
  for (uint8_t i = 0; i < 8; ++i) {
    codes.view().as<uint8_t>()[i] = static_cast<uint8_t>(2 * i | (2 * i + 1) << 4);
    codes.view().as<uint8_t>()[16 + i] = static_cast<uint8_t>((15 - 2 * i) | (14 - 2 * i) << 4);
  }
  set_values(scale, {0.25, 8});
  std::ranges::copy(kMxfp4Values, table.view().as<float>());
  // 1 for codes 0 to 7 of the first group; 1 for the first three codes of the second: 15, 14, 13.
  Values ones(k, 0);
  std::fill_n(ones.begin(), 8, 1.0);
  std::fill_n(ones.begin() + 32, 3, 1.0);
  set_values(a, ones);
  for (const SimdLevel level : cpu::simd_levels()) {
    cpu::gemm({.a = a,
               .b = Weight{.values = codes, .scale = scale.view(), .table = table.view()},
               .out = out},
              level);
    // (0 + .5 + 1 + 1.5 + 2 + 3 + 4 + 6) / 4 - (6 + 4 + 3) * 8
    EXPECT_EQ(*out.view().as<float>(), 18.0f / 4 - 13 * 8);
  }
}

// The bound of gemm.h with the f32 table of a CPU, and the rounding of a weight to float beside it
// where the weight is dequantised first.
TEST(CpuGemmTable, RandomTablesAreWithinTheStatedErrorOfAProductInDouble) {
  std::mt19937_64 random(2027);
  for (int trial = 0; trial < 120; ++trial) {
    const DType kTypes[] = {DType::f32, DType::f16, DType::bf16};
    const int64_t kGroups[] = {0, 8, 24, 32, 64, 128};
    const DType type = kTypes[random() % 3];
    const int64_t group = kGroups[random() % 6], m = 1 + static_cast<int64_t>(random() % 9);
    const int64_t k = (group == 0 ? 2 : group) * (1 + static_cast<int64_t>(random() % 7));
    std::normal_distribution<double> normal;
    const TableCase c(1 + static_cast<int64_t>(random() % 23), k, group, uneven_values(),
                      [&](std::mt19937_64& any) { return normal(any) * 0.01; });
    const Tensor a(type, {m, k});
    fill(a, [&] { return normal(random); });
    const Values x = values_of(a);
    for (const SimdLevel level : cpu::simd_levels()) {
      SCOPED_TRACE(::testing::Message() << "trial " << trial << ": " << name(type) << ", group "
                                        << group << ", m " << m << " n " << c.n << " k " << k);
      const Tensor out(DType::f32, {m, c.n}), alone(DType::f32, {1, c.n});
      cpu::gemm({.a = a, .b = c.weight(), .out = out}, level);
      const Values got = values_of(out);
      for (int64_t i = 0; i < m * c.n; ++i) {
        double want = 0, magnitude = 0;
        for (int64_t j = 0; j < k; ++j) {
          const double product = x[static_cast<size_t>(i / c.n * k + j)] * c.value(i % c.n, j);
          want += product;
          magnitude += std::abs(product);
        }
        const double bound = static_cast<double>(k + 2) * 0x1p-22 * magnitude;
        ASSERT_LE(std::abs(got[static_cast<size_t>(i)] - want), bound)
            << "element " << i << " is " << got[static_cast<size_t>(i)] << ", not " << want;
      }
      cpu::gemm({.a = a.view().slice(0, m - 1, m), .b = c.weight(), .out = alone}, level);
      const Values last(got.end() - c.n, got.end());
      ASSERT_TRUE(all_equal(values_of(alone), last)) << "a row alone has other bits";
    }
  }
}

TEST(CpuGemmTable, HasTheSameBitsForFewAndForManyRows) {
  constexpr int64_t m = 70;
  for (const int64_t group : {0, 20, 32, 64}) {
    const TableCase c(21, group == 20 ? 160 : 192, group, uneven_values(),
                      [](std::mt19937_64& any) { return 0.01 * double(any() % 100); });
    const Tensor a(DType::bf16, {m, c.k}), many(DType::f32, {m, c.n}), few(DType::f32, {m, c.n});
    fill_normal(a, 5);
    for (const SimdLevel level : cpu::simd_levels()) {
      cpu::gemm({.a = a, .b = c.weight(), .out = many}, level);
      for (int64_t row = 0; row < m; row += 5) {
        cpu::gemm({.a = a.view().slice(0, row, row + 5),
                   .b = c.weight(),
                   .out = few.view().slice(0, row, row + 5)},
                  level);
      }
      EXPECT_TRUE(all_equal(values_of(many), values_of(few))) << group;
    }
  }
}

// What follows a product does not change: bias, activation and residual.
TEST(CpuGemmTable, HasTheEpilogueOfEveryProduct) {
  const TableCase c(16, 64, 32, kIntegers, power_of_two);
  const Tensor dense(DType::bf16, {c.n, c.k}), a(DType::bf16, {3, c.k}), bias(DType::bf16, {c.n});
  const Tensor residual(DType::bf16, {3, c.n}), got(DType::bf16, {3, c.n});
  const Tensor want(DType::bf16, {3, c.n});
  set_values(dense, values_of(c.dense()));
  fill_integers(a, 1, -2, 2);
  fill_integers(bias, 2, -9, 9);
  fill_integers(residual, 3, -9, 9);
  GemmArgs args{.a = a,
                .b = c.weight(),
                .bias = bias.view(),
                .out = got,
                .activation = Activation::relu,
                .residual = residual.view()};
  cpu::gemm(args);
  args.b = dense;
  args.out = want;
  cpu::gemm(args);
  EXPECT_TRUE(all_equal(values_of(got), values_of(want)));
}

}  // namespace
}  // namespace tessera::testing
