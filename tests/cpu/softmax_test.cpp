// Softmax on the CPU against float64.
// SPDX-License-Identifier: MIT
#include "cpu/elementwise.h"
#include "tests/cpu/tensors.h"

namespace tessera::testing {
namespace {

struct SoftmaxReference {
  Values p;
  double relative_error = 0.0;
};

// One row in float64; `added` is minus infinity where the mask hides. The logits are rounded to
// float once for the product and once for the sum, and the difference to the largest once more: an
// absolute error in the exponent, a relative one in the exponential, twice because of the sum.
SoftmaxReference reference(const Values& x, double scale, const Values& added) {
  Values logits;
  double top = -kInfinity;
  for (size_t i = 0; i < x.size(); ++i) {
    logits.push_back(added[i] == -kInfinity ? -kInfinity : scale * x[i] + added[i]);
    top = std::max(top, logits[i]);
  }
  double sum = 0.0, exponent_error = 0.0;
  SoftmaxReference result;
  for (size_t i = 0; i < x.size(); ++i) {
    const double difference = logits[i] - top;
    result.p.push_back(top == -kInfinity ? 0.0 : std::exp(difference));
    sum += result.p[i];
    if (!(difference > -110.0)) continue;  // underflows to 0 in float
    exponent_error = std::max(
        exponent_error, std::fabs(scale * x[i]) + std::fabs(logits[i]) + std::fabs(difference));
  }
  for (double& p : result.p) p = sum == 0.0 ? 0.0 : p / sum;
  result.relative_error = kFloatUnit * (2.0 * exponent_error + 6.0);
  return result;
}

void expect_close(const TensorView& x, const TensorView& out, double scale, const Values& added) {
  const size_t cols = static_cast<size_t>(x.size(-1));
  const Values xs = values_of(x), got = values_of(out);
  for (size_t row = 0; row * cols < xs.size(); ++row) {
    const auto part = [&](const Values& all) {
      const auto begin = all.begin() + static_cast<std::ptrdiff_t>(row * cols % all.size());
      return Values(begin, begin + static_cast<std::ptrdiff_t>(cols));
    };
    const SoftmaxReference want = reference(part(xs), scale, part(added));
    Values bound;
    for (double p : want.p) {
      bound.push_back(rounded_once(out.dtype, p, want.relative_error * p + 0x1p-148));
    }
    EXPECT_TRUE(all_close(part(got), want.p, bound)) << "row " << row;
  }
}

class CpuSoftmax : public ::testing::TestWithParam<DType> {};

TEST_P(CpuSoftmax, IsCloseForEveryWidthAndScale) {
  for (int64_t cols : {1, 2, 7, 64, 1000, 5003}) {
    for (float scale : {1.0f, 0.088388346f, -3.0f, 0.0f}) {
      SCOPED_TRACE(::testing::Message() << "cols " << cols << " scale " << scale);
      Tensor x(GetParam(), {3, cols}), out(GetParam(), {3, cols});
      fill_normal(x, 1, 5.0);
      cpu::softmax({.x = x, .out = out, .mask = {}, .scale = scale});
      expect_close(x, out, double{scale}, Values(static_cast<size_t>(3 * cols), 0.0));
    }
  }
}

TEST_P(CpuSoftmax, EqualLogitsShareEqually) {
  for (int64_t cols : {1, 2, 4, 1024}) {
    Tensor x(GetParam(), {2, cols}), out(GetParam(), {2, cols});
    fill(x, [] { return 7.0; });
    cpu::softmax({.x = x, .out = out});
    EXPECT_TRUE(all_equal(values_of(out),
                          Values(static_cast<size_t>(2 * cols), 1.0 / static_cast<double>(cols))));
  }
}

// A mask of [3, cols] over six rows: row r reads mask row r % 3.
TEST_P(CpuSoftmax, MasksHideOrAddAndRepeat) {
  constexpr int64_t kCols = 37;
  Tensor x(GetParam(), {2, 3, kCols}), out(GetParam(), {2, 3, kCols});
  Tensor bytes(DType::u8, {3, kCols});
  GappedRows floats(DType::f32, 3, kCols, 5);
  fill_normal(x, 1);
  fill_normal(floats.view(), 2);
  std::mt19937_64 random(3);
  Values hidden;
  fill(bytes, [&] {
    const bool is_visible = random() % 3 != 0;
    hidden.push_back(is_visible ? 0.0 : -kInfinity);
    return is_visible ? static_cast<double>(1 + random() % 255) : 0.0;
  });
  cpu::softmax({.x = x, .out = out, .mask = bytes});
  expect_close(x, out, 1.0, hidden);

  Values added = values_of(floats.view());
  for (size_t i = 0; i < added.size(); ++i) added[i] += hidden[i];
  set_values(floats.view(), added);
  cpu::softmax({.x = x, .out = out, .mask = floats.view(), .scale = 0.5f});
  expect_close(x, out, 0.5, added);
}

TEST_P(CpuSoftmax, ARowWithNothingVisibleGivesZeros) {
  Tensor x(GetParam(), {2, 9}), out(GetParam(), {2, 9}), mask(DType::u8, {2, 9});
  fill_normal(x, 1);
  fill(mask.view().slice(0, 0, 1), [] { return 0.0; });
  fill(mask.view().slice(0, 1, 2), [] { return 1.0; });
  cpu::softmax({.x = x, .out = out, .mask = mask});
  EXPECT_TRUE(all_equal(values_of(out.view().slice(0, 0, 1)), Values(9, 0.0)));
  expect_close(x.view().slice(0, 1, 2), out.view().slice(0, 1, 2), 1.0, Values(9, 0.0));
  fill(x, [] { return -kInfinity; });
  cpu::softmax({.x = x, .out = out});
  EXPECT_TRUE(all_equal(values_of(out), Values(18, 0.0)));
}

TEST_P(CpuSoftmax, HugeAndInfiniteLogits) {
  const Tensor x = tensor_of(GetParam(), {3, 3},
                             {60000.0, 60000.0, -60000.0,      //
                              -60000.0, -kInfinity, -60000.0,  //
                              1.0, -kInfinity, -kInfinity});
  Tensor out(GetParam(), {3, 3});
  cpu::softmax({.x = x, .out = out});
  EXPECT_TRUE(all_equal(values_of(out), {0.5, 0.5, 0.0, 0.5, 0.0, 0.5, 1.0, 0.0, 0.0}));
}

TEST_P(CpuSoftmax, NanShowsWhereItIsVisibleAndOnlyThere) {
  const Tensor x = tensor_of(GetParam(), {1, 3}, {kNan, 1.0, 1.0});
  Tensor out(GetParam(), {1, 3});
  cpu::softmax({.x = x, .out = out});
  EXPECT_TRUE(all_equal(values_of(out), {kNan, kNan, kNan}));
  cpu::softmax({.x = x, .out = out, .mask = tensor_of(DType::u8, {1, 3}, {0, 1, 1})});
  EXPECT_TRUE(all_equal(values_of(out), {0.0, 0.5, 0.5}));
  const Tensor minus_infinity = tensor_of(DType::f32, {1, 3}, {-kInfinity, 0.0, 0.0});
  cpu::softmax({.x = x, .out = out, .mask = minus_infinity});
  EXPECT_TRUE(all_equal(values_of(out), {0.0, 0.5, 0.5}));
  const Tensor all_bad = tensor_of(GetParam(), {1, 2}, {kNan, -kInfinity});
  Tensor two(GetParam(), {1, 2});
  cpu::softmax({.x = all_bad, .out = two});
  EXPECT_TRUE(all_equal(values_of(two), {kNan, kNan}));
}

TEST_P(CpuSoftmax, WorksInPlaceOnStridedRowsAndOnNothing) {
  GappedRows x(GetParam(), 5, 21, 4);
  Tensor want(GetParam(), {5, 21});
  fill_normal(x.view(), 1);
  cpu::softmax({.x = x.view(), .out = want});
  cpu::softmax({.x = x.view(), .out = x.view()});
  EXPECT_TRUE(all_equal(values_of(x.view()), values_of(want)));
  EXPECT_TRUE(x.gaps_untouched());
  Tensor no_rows(GetParam(), {0, 5}), no_cols(GetParam(), {5, 0});
  cpu::softmax({.x = no_rows, .out = no_rows});
  cpu::softmax({.x = no_cols, .out = no_cols});
}

INSTANTIATE_TEST_SUITE_P(EveryFloatType, CpuSoftmax, ::testing::ValuesIn(kFloatTypes), dtype_name);

}  // namespace
}  // namespace tessera::testing
