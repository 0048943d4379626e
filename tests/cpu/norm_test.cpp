// RMSNorm and LayerNorm on the CPU against float64.
// SPDX-License-Identifier: MIT
#include "cpu/elementwise.h"
#include "tests/core/threads.h"
#include "tests/cpu/tensors.h"

namespace tessera::testing {
namespace {

struct NormReference {
  Values y;
  Values error;  // what arithmetic in float may add, before rounding to the output type
};

// One row in float64. Each factor that is rounded to float adds one unit of error; compared with
// that the sums are exact.
NormReference rms_reference(const Values& h, const Values& weight, double eps) {
  double sum = 0.0;
  for (double value : h) sum += value * value;
  const double inverse = 1.0 / std::sqrt(sum / static_cast<double>(h.size()) + eps);
  NormReference result;
  for (size_t i = 0; i < h.size(); ++i) {
    result.y.push_back(h[i] * inverse * weight[i]);
    result.error.push_back(4.0 * kFloatUnit * std::fabs(result.y[i]));
  }
  return result;
}

NormReference layer_reference(const Values& h, const Values& weight, const Values& bias,
                              double eps) {
  const double count = static_cast<double>(h.size());
  double mean = 0.0;
  for (double value : h) mean += value / count;
  double variance = 0.0;
  for (double value : h) variance += (value - mean) * (value - mean) / count;
  const double inverse = 1.0 / std::sqrt(variance + eps);
  NormReference result;
  for (size_t i = 0; i < h.size(); ++i) {
    const double product = (h[i] - mean) * inverse * weight[i];
    result.y.push_back(product + bias[i]);
    result.error.push_back(kFloatUnit * (5.0 * std::fabs(product) + std::fabs(result.y[i])));
  }
  return result;
}

Values row_of(const Values& all, size_t row, size_t cols) {
  const auto begin = all.begin() + static_cast<std::ptrdiff_t>(row * cols);
  return Values(begin, begin + static_cast<std::ptrdiff_t>(cols));
}

// The rows of a norm with the tolerance of its output type.
template <class RowReference>
void expect_rows_close(const TensorView& h, const TensorView& out, RowReference&& reference) {
  const size_t cols = static_cast<size_t>(h.size(-1));
  const Values inputs = values_of(h);
  const Values outputs = values_of(out);
  for (size_t row = 0; row * cols < inputs.size(); ++row) {
    const NormReference want = reference(row_of(inputs, row, cols));
    Values bound;
    for (size_t i = 0; i < cols; ++i) {
      bound.push_back(rounded_once(out.dtype, want.y[i], want.error[i]));
    }
    EXPECT_TRUE(all_close(row_of(outputs, row, cols), want.y, bound)) << "row " << row;
  }
}

class CpuNorm : public ::testing::TestWithParam<DType> {};

TEST_P(CpuNorm, RmsNormIsCloseForEveryWidth) {
  for (int64_t hidden : {1, 2, 7, 31, 64, 1000, 4099}) {
    SCOPED_TRACE(hidden);
    Tensor x(GetParam(), {3, hidden}), weight(GetParam(), {hidden}), out(GetParam(), {3, hidden});
    fill_normal(x, 1, 2.0);
    fill_normal(weight, 2);
    cpu::rms_norm({.x = x, .weight = weight, .out = out, .eps = 1e-5f});
    expect_rows_close(x, out, [&](const Values& h) {
      return rms_reference(h, values_of(weight), double{1e-5f});
    });
  }
}

TEST_P(CpuNorm, LayerNormIsCloseForEveryWidthAlsoFarFromZero) {
  for (double offset : {0.0, 100.0}) {
    for (int64_t hidden : {1, 2, 7, 31, 64, 1000, 4099}) {
      SCOPED_TRACE(hidden);
      Tensor x(GetParam(), {3, hidden}), weight(GetParam(), {hidden}), bias(GetParam(), {hidden});
      Tensor out(GetParam(), {3, hidden});
      std::mt19937_64 random(5);
      std::normal_distribution<double> normal(offset, 1.0);
      fill(x, [&] { return normal(random); });
      fill_normal(weight, 2);
      fill_normal(bias, 3);
      cpu::layer_norm({.x = x, .weight = weight, .bias = bias, .out = out, .eps = 1e-5f});
      expect_rows_close(x, out, [&](const Values& h) {
        return layer_reference(h, values_of(weight), values_of(bias), double{1e-5f});
      });
    }
  }
}

// With h = +-1 and eps = 0 the root mean square is exactly 1, so y = h * weight without rounding.
TEST_P(CpuNorm, IsExactOnPlusMinusOne) {
  constexpr int64_t kHidden = 129;
  Tensor x(GetParam(), {5, kHidden}), weight(GetParam(), {kHidden}), out(GetParam(), {5, kHidden});
  std::mt19937_64 random(9);
  fill(x, [&] { return random() % 2 == 0 ? 1.0 : -1.0; });
  fill_integers(weight, 4, -100, 100);
  cpu::rms_norm({.x = x, .weight = weight, .out = out, .eps = 0.0f});
  const Values xs = values_of(x), weights = values_of(weight);
  Values want;
  for (size_t i = 0; i < xs.size(); ++i) want.push_back(xs[i] * weights[i % kHidden]);
  EXPECT_TRUE(all_equal(values_of(out), want));

  // The same codes in int8 under a scale of 1; a scale of 1/2 doubles and saturates them.
  for (double scale : {1.0, 0.5}) {
    Tensor codes(DType::i8, {5, kHidden});
    const Tensor static_scale = tensor_of(DType::f32, {1}, {scale});
    cpu::rms_norm(
        {.x = x, .weight = weight, .out = codes, .static_scale = static_scale, .eps = 0.0f});
    Values want_codes;
    for (double y : want) want_codes.push_back(std::clamp(y / scale, -127.0, 127.0));
    EXPECT_TRUE(all_equal(values_of(codes), want_codes)) << "scale " << scale;
  }
}

// The residual receives the sum rounded to its type, and the norm reads that sum, not a wider one.
TEST_P(CpuNorm, AddsTheResidualFirstAndStoresIt) {
  Tensor x(GetParam(), {4, 100}), weight(GetParam(), {100}), out(GetParam(), {4, 100});
  Tensor residual(GetParam(), {4, 100}), sum(GetParam(), {4, 100});
  fill_normal(x, 1);
  fill_normal(weight, 2);
  fill_normal(residual, 3, 10.0);
  const Values before = values_of(residual), xs = values_of(x);
  Values sums;
  for (size_t i = 0; i < xs.size(); ++i) sums.push_back(before[i] + xs[i]);
  set_values(sum, sums);
  cpu::rms_norm({.x = x, .weight = weight, .out = out, .residual = residual, .eps = 1e-6f});
  EXPECT_TRUE(all_equal(values_of(residual), values_of(sum)));
  expect_rows_close(residual, out, [&](const Values& h) {
    return rms_reference(h, values_of(weight), double{1e-6f});
  });

  set_values(residual, before);
  cpu::layer_norm({.x = x, .weight = weight, .out = out, .residual = residual, .eps = 1e-6f});
  EXPECT_TRUE(all_equal(values_of(residual), values_of(sum)));
  expect_rows_close(residual, out, [&](const Values& h) {
    return layer_reference(h, values_of(weight), Values(100, 0.0), double{1e-6f});
  });
}

// code * scale may differ from y by half a step of the code, and by what float arithmetic adds.
TEST_P(CpuNorm, QuantizesPerToken) {
  for (DType code : {DType::e4m3, DType::i8}) {
    SCOPED_TRACE(name(code));
    Tensor x(GetParam(), {6, 333}), weight(GetParam(), {333}), out(code, {6, 333});
    Tensor token_scale(DType::f32, {6});
    fill_normal(x, 1);
    fill_normal(weight, 2);
    fill(x.view().slice(0, 2, 3), [] { return 0.0; });
    cpu::rms_norm({.x = x, .weight = weight, .out = out, .token_scale = token_scale});
    const double qmax = quant_max(code);
    const Values codes = values_of(out), scales = values_of(token_scale), xs = values_of(x);
    for (size_t row = 0; row < 6; ++row) {
      const NormReference want =
          rms_reference(row_of(xs, row, 333), values_of(weight), double{1e-5f});
      double absmax = 0.0;
      for (double y : want.y) absmax = std::max(absmax, std::fabs(y));
      const double scale = absmax == 0.0 ? 1.0 : absmax / qmax;
      EXPECT_NEAR(scales[row], scale, 6.0 * kFloatUnit * scale);
      Values got, bound;
      for (size_t i = 0; i < 333; ++i) {
        const double step = code == DType::i8 ? 1.0 : spacing(code, want.y[i] / scale);
        got.push_back(codes[row * 333 + i] * scales[row]);
        bound.push_back(scale * (step / 2.0 + 16.0 * kFloatUnit * qmax));
      }
      EXPECT_TRUE(all_close(got, want.y, bound)) << "row " << row;
    }
    EXPECT_EQ(scales[2], 1.0) << "a row of zeros";
  }
}

TEST_P(CpuNorm, TakesStridedRowsAndFoldedAxesAndWorksInPlace) {
  GappedRows x(GetParam(), 6, 50, 14), out(GetParam(), 6, 50, 3);
  Tensor weight(GetParam(), {50}), dense(GetParam(), {6, 50}), want(GetParam(), {6, 50});
  fill_normal(x.view(), 1);
  fill_normal(weight, 2);
  set_values(dense, values_of(x.view()));
  cpu::rms_norm({.x = dense, .weight = weight, .out = want});

  cpu::rms_norm({.x = x.view(), .weight = weight, .out = out.view()});
  EXPECT_TRUE(all_equal(values_of(out.view()), values_of(want)));
  EXPECT_TRUE(out.gaps_untouched());

  TensorView folded = out.view();  // [6, 50] as [2, 3, 50]
  folded.rank = 3;
  folded.shape = {2, 3, 50};
  folded.strides = {3 * 53, 53, 1};
  TensorView folded_x = TensorView::contiguous(dense.view().data, GetParam(), {2, 3, 50});
  fill(folded, [] { return 0.0; });
  cpu::rms_norm({.x = folded_x, .weight = weight, .out = folded});
  EXPECT_TRUE(all_equal(values_of(out.view()), values_of(want)));

  cpu::rms_norm({.x = dense, .weight = weight, .out = dense});
  EXPECT_TRUE(same_bytes(dense, want));
}

TEST_P(CpuNorm, NoRowsLeaveEverythingAlone) {
  Tensor x(GetParam(), {0, 8}), weight(GetParam(), {8}), out(GetParam(), {0, 8});
  fill_normal(weight, 1);
  cpu::rms_norm({.x = x, .weight = weight, .out = out});
  cpu::layer_norm({.x = x, .weight = weight, .out = out});
  EXPECT_EQ(out.view().num_elements(), 0);
}

TEST_P(CpuNorm, DoesNotDependOnTheNumberOfThreads) {
  Tensor x(GetParam(), {37, 2049}), weight(GetParam(), {2049}), bias(GetParam(), {2049});
  Tensor one(GetParam(), {37, 2049}), many(GetParam(), {37, 2049});
  fill_normal(x, 1);
  fill_normal(weight, 2);
  fill_normal(bias, 3);
  for (const auto& [count, out] : {std::pair(1, one.view()), std::pair(7, many.view())}) {
    const Threads threads(count);
    cpu::layer_norm({.x = x, .weight = weight, .bias = bias, .out = out});
  }
  EXPECT_TRUE(same_bytes(one, many));
}

INSTANTIATE_TEST_SUITE_P(EveryFloatType, CpuNorm, ::testing::ValuesIn(kFloatTypes), dtype_name);

}  // namespace
}  // namespace tessera::testing
