// Activations on the CPU against float64.
// SPDX-License-Identifier: MIT
#include "cpu/elementwise.h"
#include "tests/cpu/tensors.h"

namespace tessera::testing {
namespace {

constexpr Activation kKinds[] = {Activation::relu, Activation::silu, Activation::gelu,
                                 Activation::gelu_tanh};

struct Exact {
  double y;
  double relative_error;  // of float arithmetic, in units of 2^-24
};

// Uses other formulas than the code: tanh and erfc in long double. A relative error in the argument
// of the exponential is multiplied by that argument.
Exact exact(Activation kind, double x) {
  const long double wide = x;
  switch (kind) {
    case Activation::relu: return {std::max(x, 0.0), 0.0};
    case Activation::silu: {
      const long double y =
          x < 0 ? wide * std::exp(wide) / (1.0L + std::exp(wide)) : wide / (1.0L + std::exp(-wide));
      return {static_cast<double>(y), 6.0};
    }
    case Activation::gelu: {
      const long double y = 0.5L * wide * std::erfc(-wide / std::sqrt(2.0L));
      return {static_cast<double>(y), 6.0 + 2.0 * x * x};
    }
    case Activation::gelu_tanh: {
      const long double cube = 0.044715L * wide * wide * wide;
      const long double u = std::sqrt(2.0L / std::acos(-1.0L)) * (wide + cube);
      const long double t = std::exp(-2.0L * std::fabs(u));
      const long double y = u < 0 ? wide * t / (1.0L + t) : wide / (1.0L + t);
      return {static_cast<double>(y), 6.0 + 12.0 * static_cast<double>(std::fabs(u))};
    }
  }
  return {};
}

void expect_close(Activation kind, const TensorView& x, const Values& up, const TensorView& out) {
  const Values xs = values_of(x);
  Values want, bound;
  for (size_t i = 0; i < xs.size(); ++i) {
    const Exact f = exact(kind, xs[i]);
    const double y = f.y * up[i];
    const double units = f.relative_error + 2.0;
    // Where the exponential is subnormal, its error is absolute.
    const double below = 0x1p-149 * (1.0 + std::fabs(xs[i])) * (1.0 + std::fabs(up[i]));
    want.push_back(y);
    bound.push_back(rounded_once(out.dtype, y, units * kFloatUnit * std::fabs(y) + below));
  }
  EXPECT_TRUE(all_close(values_of(out), want, bound)) << "kind " << static_cast<int>(kind);
}

class CpuActivation : public ::testing::TestWithParam<DType> {};

TEST_P(CpuActivation, IsCloseOverTheWholeRange) {
  constexpr int64_t kCols = 2001;
  Tensor x(GetParam(), {2, kCols}), out(GetParam(), {2, kCols});
  double next = -110.0;  // results there are below the smallest f32
  fill(x.view().slice(0, 0, 1), [&] { return next += 0.11 / 2; });
  fill_normal(x.view().slice(0, 1, 2), 3);
  for (Activation kind : kKinds) {
    cpu::activation({.x = x, .up = {}, .out = out, .kind = kind});
    expect_close(kind, x, Values(2 * kCols, 1.0), out);
  }
}

TEST_P(CpuActivation, GatesByTheOtherHalfOfAMatrix) {
  for (int64_t cols : {1, 3, 64, 257}) {
    Tensor both(GetParam(), {5, 2 * cols});
    fill_normal(both, 4, 2.0);
    const TensorView gate = both.view().slice(1, 0, cols);
    const TensorView up = both.view().slice(1, cols, 2 * cols);
    GappedRows out(GetParam(), 5, cols, 7);
    for (Activation kind : kKinds) {
      cpu::activation({.x = gate, .up = up, .out = out.view(), .kind = kind});
      expect_close(kind, gate, values_of(up), out.view());
      EXPECT_TRUE(out.gaps_untouched());
    }
  }
}

TEST_P(CpuActivation, ReluIsExactAndKeepsNan) {
  Tensor x = tensor_of(GetParam(), {6}, {-2.0, -0.0, 0.0, 3.0, kNan, kInfinity}),
         out(GetParam(), {6});
  cpu::activation({.x = x, .up = {}, .out = out, .kind = Activation::relu});
  EXPECT_TRUE(all_equal(values_of(out), {0.0, 0.0, 0.0, 3.0, kNan, kInfinity}));
}

TEST_P(CpuActivation, LimitsAreRight) {
  Tensor x = tensor_of(GetParam(), {3}, {-60000.0, 60000.0, 0.0}), out(GetParam(), {3});
  const double top = values_of(x)[1];
  for (Activation kind : kKinds) {
    cpu::activation({.x = x, .up = {}, .out = out, .kind = kind});
    EXPECT_TRUE(all_equal(values_of(out), {0.0, top, 0.0})) << "kind " << static_cast<int>(kind);
  }
}

TEST_P(CpuActivation, WorksInPlaceOfEitherOperandAndOnNothing) {
  Tensor x(GetParam(), {7, 33}), up(GetParam(), {7, 33}), want(GetParam(), {7, 33});
  fill_normal(x, 1);
  fill_normal(up, 2);
  const Values xs = values_of(x);
  cpu::activation({.x = x, .up = up, .out = want});
  cpu::activation({.x = x, .up = up, .out = x});
  EXPECT_TRUE(same_bytes(x, want));
  set_values(x, xs);
  cpu::activation({.x = x, .up = up, .out = up});
  EXPECT_TRUE(same_bytes(up, want));

  Tensor no_rows(GetParam(), {0, 5}), no_cols(GetParam(), {5, 0});
  cpu::activation({.x = no_rows, .up = {}, .out = no_rows});
  cpu::activation({.x = no_cols, .up = {}, .out = no_cols});
}

INSTANTIATE_TEST_SUITE_P(EveryFloatType, CpuActivation, ::testing::ValuesIn(kFloatTypes),
                         dtype_name);

}  // namespace
}  // namespace tessera::testing
