// Products with every quantised form of a weight, against a dense product with the same values.
// Integers and scales that are powers of two: every value and every sum is exact in float.
// SPDX-License-Identifier: MIT
#include "cpu/gemm.h"
#include "tests/cpu/tensors.h"

namespace tessera::testing {
namespace {

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

}  // namespace
}  // namespace tessera::testing
