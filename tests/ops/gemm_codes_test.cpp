// The product of two quantised operands on the CPU, against a product of their values in double.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "tessera/ops/gemm.h"
#include "tessera/ops/quantize.h"

namespace tessera {
namespace {

constexpr int64_t kGroup = 128;

struct Case {
  DType dtype;       // of a
  int64_t a_scales;  // in a row of a; 0: one for all
  int64_t b_rows;    // rows of b that share a scale; 0: all
  bool has_groups;   // of 128 elements of k, in b
  DType weight = dtype == DType::e4m3 ? DType::e4m3 : DType::i8;
};

class CodesProduct : public ::testing::TestWithParam<Case> {
 protected:
  static constexpr int64_t kM = 5, kN = 260, kK = 384;
  std::mt19937 random{7};

  Tensor codes(DType dtype, int64_t rows) {
    Tensor t(dtype, {rows, kK});
    const int most = dtype == DType::i4 ? 7 : 127;
    std::uniform_int_distribution<int> draw(dtype == DType::u8   ? 0
                                            : dtype == DType::i4 ? -8
                                                                 : -most,
                                            most);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < kK; ++c) {
        const int64_t at[] = {r, c};
        store_from_float(t, at, static_cast<float>(draw(random)));
      }
    }
    return t;
  }
  Tensor scales(std::vector<int64_t> shape) {
    Tensor t(DType::f32, shape);
    std::uniform_real_distribution<float> draw(0.5f, 2.0f);
    for (int64_t i = 0; i < t.view().num_elements(); ++i) t.view().as<float>()[i] = draw(random);
    return t;
  }
};

TEST_P(CodesProduct, IsWithinItsBoundOfTheProductInDouble) {
  const Case c = GetParam();
  const Tensor a = codes(c.dtype, kM), b = codes(c.weight, kN);
  const Tensor a_scale = c.a_scales == 0   ? scales({1})
                         : c.a_scales == 1 ? scales({kM})
                                           : scales({kM, kK / kGroup});
  const int64_t b_rows = c.b_rows == 0 ? kN : c.b_rows;
  const Tensor b_scale = c.has_groups    ? scales({(kN + b_rows - 1) / b_rows, kK / kGroup})
                         : c.b_rows == 0 ? scales({1})
                                         : scales({kN});
  Weight w{.values = b, .scale = b_scale};
  if (c.has_groups) {
    w.rows_per_scale = b_rows;
    w.group = kGroup;
  }
  Tensor zero(DType::i32, {kM}), out(DType::f32, {kM, kN});
  for (int64_t i = 0; i < kM; ++i) zero.view().as<int32_t>()[i] = static_cast<int32_t>(40 + i);
  GemmArgs args{.a = a, .b = w, .out = out, .a_scale = a_scale};
  if (c.dtype == DType::u8) args.a_zero_point = zero;
  gemm(args);
  const ScaleLayout b_layout = scale_layout(w);
  for (int64_t i = 0; i < kM; ++i) {
    for (int64_t j = 0; j < kN; ++j) {
      double sum = 0, magnitude = 0;
      for (int64_t l = 0; l < kK; ++l) {
        const int64_t a_at[] = {i, l}, b_at[] = {j, l};
        double x = load_as_float(a, a_at);
        if (c.dtype == DType::u8) x -= static_cast<double>(40 + i);
        const int64_t a_index = c.a_scales == 0   ? 0
                                : c.a_scales == 1 ? i
                                                  : i * (kK / kGroup) + l / kGroup;
        const int64_t b_index =
            j / b_layout.rows_per_scale * b_layout.scales_per_row + l / b_layout.cols_per_scale;
        const double term = x * double{load_as_float(b, b_at)} *
                            double{a_scale.view().as<float>()[a_index]} *
                            double{b_scale.view().as<float>()[b_index]};
        sum += term;
        magnitude += std::abs(term);
      }
      const double got = out.view().as<float>()[i * kN + j];
      const double bound = c.dtype == DType::e4m3 ? magnitude * static_cast<double>(kK) * 0x1p-22
                                                  : magnitude * 4 * 0x1p-22;
      EXPECT_NEAR(got, sum, bound) << "row " << i << ", column " << j;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Forms, CodesProduct,
    ::testing::Values(
        Case{DType::i8, 0, 0, false}, Case{DType::i8, 1, 1, false}, Case{DType::i8, 3, 1, true},
        Case{DType::i8, 1, 128, true}, Case{DType::u8, 1, 1, false}, Case{DType::u8, 0, 0, false},
        Case{DType::e4m3, 1, 1, false}, Case{DType::e4m3, 3, 128, true},
        Case{DType::e4m3, 0, 0, false}, Case{DType::i8, 1, 1, true, DType::i4},
        Case{DType::i8, 3, 1, true, DType::i4}, Case{DType::i8, 0, 0, false, DType::i4},
        Case{DType::e4m3, 1, 1, true, DType::i4}, Case{DType::e4m3, 3, 1, false, DType::i4},
        Case{DType::i4, 1, 1, false, DType::i4}, Case{DType::i4, 3, 1, true, DType::i4}));

// Long sums of the largest codes: a float could not hold them, so they must be integers.
TEST(CodesProductOfIntegers, IsExact) {
  constexpr int64_t kLong = 4096;
  Tensor a(DType::i8, {1, kLong}), b(DType::i8, {1, kLong}), one(DType::f32, {1});
  Tensor out(DType::f32, {1, 1});
  for (int64_t i = 0; i < kLong; ++i) {
    a.view().as<int8_t>()[i] = 127;
    b.view().as<int8_t>()[i] = i % 2 == 0 ? 127 : -127;
  }
  b.view().as<int8_t>()[1] = -126;
  *one.view().as<float>() = 1.0f;
  gemm({.a = a, .b = Weight{.values = b, .scale = one}, .out = out, .a_scale = one});
  EXPECT_EQ(*out.view().as<float>(), 127.0f);
}

TEST(SumWeightRows, CountsTheCodesOfARow) {
  Tensor values(DType::i8, {3, 128}), sums(DType::f32, {3});
  for (int64_t i = 0; i < 3 * 128; ++i) {
    values.view().as<int8_t>()[i] = static_cast<int8_t>(i / 128 == 1 ? -127 : i % 7);
  }
  sum_weight_rows({.values = values, .out = sums});
  EXPECT_EQ(sums.view().as<float>()[1], -127.0f * 128);
  EXPECT_EQ(sums.view().as<float>()[0], 379.0f);
}

}  // namespace
}  // namespace tessera
