// The epilogue of the matrix product on the CPU (bias, activation, gate, residual, quantised
// output) and batches of matrices, against the formulas of the public header in float64.
// SPDX-License-Identifier: MIT
#include <optional>
#include <vector>

#include "cpu/elementwise.h"
#include "cpu/gemm.h"
#include "tests/core/threads.h"
#include "tests/cpu/tensors.h"

namespace tessera::testing {
namespace {

double activated(Activation kind, double x) {
  switch (kind) {
    case Activation::relu: return std::max(x, 0.0);
    case Activation::silu: return x / (1.0 + std::exp(-x));
    case Activation::gelu: return x * 0.5 * std::erfc(-x / std::sqrt(2.0));
    default: break;
  }
  return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
}

// The header's d before it is rounded to the output type, and the error that float arithmetic may
// add.
struct GemmEpilogueReference {
  Values d, error;
};

GemmEpilogueReference epilogue_reference(const GemmArgs& args) {
  const Values a = values_of(args.a), b = values_of(args.b.values);
  const Values bias = args.bias ? values_of(*args.bias) : Values();
  const Values residual = args.residual ? values_of(*args.residual) : Values();
  const size_t m = static_cast<size_t>(args.a.size(0)), n = static_cast<size_t>(args.b.n());
  const size_t k = static_cast<size_t>(args.a.size(1));
  const size_t num_cols = args.is_gated ? n / 2 : n;
  const auto sum_of = [&](size_t i, size_t j, double& error) {
    double sum = 0.0, magnitude = 0.0;
    for (size_t l = 0; l < k; ++l) {
      sum += a[i * k + l] * b[j * k + l];
      magnitude += std::fabs(a[i * k + l] * b[j * k + l]);
    }
    if (!bias.empty()) sum += bias[j];
    error = static_cast<double>(k) * 4 * kFloatUnit * magnitude + 4 * kFloatUnit * std::fabs(sum);
    return sum;
  };
  GemmEpilogueReference result;
  for (size_t i = 0; i < m; ++i) {
    for (size_t j = 0; j < num_cols; ++j) {
      double error = 0.0, up_error = 0.0;
      const size_t gate_row = args.is_gated ? j / 8 * 16 + j % 8 : j;
      double d = sum_of(i, gate_row, error);
      if (args.activation) {
        d = activated(*args.activation, d);
        error = 1.13 * error + 1e-6 + 8 * kFloatUnit * std::fabs(d);
      }
      if (args.is_gated) {
        const double up = sum_of(i, gate_row + 8, up_error);
        error = error * (std::fabs(up) + up_error) + std::fabs(d) * up_error;
        d *= up;
      }
      if (!residual.empty()) d += residual[i * num_cols + j];
      result.d.push_back(d);
      result.error.push_back(error + 4 * kFloatUnit * std::fabs(d));
    }
  }
  return result;
}

// d rounded once to the type of out.
Values stored(const Values& d, const GemmArgs& args) {
  const double scale = args.out_scale ? values_of(*args.out_scale)[0] : 1.0;
  const Tensor out(args.out.dtype, {args.out.size(0), args.out.size(1)});
  Values codes;
  for (double value : d) {
    value /= scale;
    if (out.view().dtype == DType::i8) value = std::nearbyint(std::clamp(value, -127.0, 127.0));
    codes.push_back(value);
  }
  if (!codes.empty()) set_values(out, codes);
  return values_of(out);
}

struct Case {
  int64_t m, n, k;
  bool has_bias = false;
  std::optional<Activation> activation = {};
  bool is_gated = false;
  bool has_residual = false;
};

// The operands of a case; args() points at them.
struct Operands {
  Tensor a, b, bias, residual, out, scale;
  Case c;

  Operands(DType type, DType out_type, const Case& made_for)
      : a(type, {made_for.m, made_for.k}),
        b(type, {made_for.n, made_for.k}),
        bias(type, {made_for.n}),
        residual(type, {made_for.m, made_for.is_gated ? made_for.n / 2 : made_for.n}),
        out(out_type, {made_for.m, made_for.is_gated ? made_for.n / 2 : made_for.n}),
        scale(tensor_of(DType::f32, {1}, {made_for.is_gated ? 16.0 : 0.5})),
        c(made_for) {
    fill(out, [] { return 77.0; });
  }
  void fill_with_integers() {
    fill_integers(a, 1, -2, 2);
    fill_integers(b, 2, -2, 2);
    fill_integers(bias, 3, -9, 9);
    fill_integers(residual, 4, -9, 9);
  }
  void fill_with_normal() {
    fill_normal(a, 1);
    fill_normal(b, 2, 0.3);
    fill_normal(bias, 3);
    fill_normal(residual, 4);
  }
  GemmArgs args() const {
    GemmArgs args{.a = a, .b = b, .out = out, .activation = c.activation, .is_gated = c.is_gated};
    if (c.has_bias) args.bias = bias;
    if (c.has_residual) args.residual = residual;
    const DType type = out.view().dtype;
    if (type == DType::e4m3 || type == DType::i8) args.out_scale = scale;
    return args;
  }
};

constexpr Activation kActivations[] = {Activation::relu, Activation::silu, Activation::gelu,
                                       Activation::gelu_tanh};

class CpuGemmEpilogue : public ::testing::TestWithParam<DType> {
 protected:
  static std::vector<DType> out_types() {
    std::vector<DType> types = {DType::f32, DType::e4m3, DType::i8};
    if (GetParam() != DType::f32) types.push_back(GetParam());
    return types;
  }
  static void expect_exact(const GemmArgs& args) {
    const Values want =
        stored(epilogue_reference(args).d, args);  // before a run in place changes residual
    cpu::gemm(args);
    EXPECT_TRUE(all_equal(values_of(args.out), want));
  }
};

// All combinations in which every intermediate value is an integer, so that only the last step
// rounds.
TEST_P(CpuGemmEpilogue, IsExactOnSmallIntegers) {
  for (const Case& shape : {Case{1, 16, 8}, Case{5, 32, 33}, Case{13, 48, 64}, Case{3, 16, 0}}) {
    for (const DType out_type : out_types()) {
      for (int options = 0; options < 16; ++options) {
        Case c = shape;
        c.has_bias = (options & 1) != 0;
        c.has_residual = (options & 2) != 0;
        c.is_gated = (options & 4) != 0;
        if ((options & 8) != 0 || c.is_gated) c.activation = Activation::relu;
        SCOPED_TRACE(::testing::Message() << "m=" << c.m << " n=" << c.n << " k=" << c.k
                                          << " options=" << options << " " << name(out_type));
        Operands operands(GetParam(), out_type, c);
        operands.fill_with_integers();
        expect_exact(operands.args());
        if (!c.has_residual || out_type != GetParam()) continue;
        GemmArgs in_place = operands.args();
        in_place.out = operands.residual;
        expect_exact(in_place);
      }
    }
  }
}

// More rows than one pass of the epilogue takes.
TEST_P(CpuGemmEpilogue, IsExactOnManyRows) {
  Operands operands(GetParam(), GetParam(), {9000, 256, 2, true, Activation::relu, true, true});
  operands.fill_with_integers();
  expect_exact(operands.args());
}

TEST_P(CpuGemmEpilogue, IsCloseOnNormalData) {
  for (const Activation kind : kActivations) {
    for (const bool is_gated : {false, true}) {
      for (const DType out_type : {GetParam(), DType::f32}) {
        SCOPED_TRACE(::testing::Message()
                     << static_cast<int>(kind) << (is_gated ? " gated " : " ") << name(out_type));
        Operands operands(GetParam(), out_type, {7, 64, 100, true, kind, is_gated, true});
        operands.fill_with_normal();
        const GemmArgs args = operands.args();
        const GemmEpilogueReference want = epilogue_reference(args);
        Values bound;
        for (size_t i = 0; i < want.d.size(); ++i) {
          bound.push_back(want.error[i] + spacing(out_type, std::fabs(want.d[i]) + want.error[i]));
        }
        cpu::gemm(args);
        EXPECT_TRUE(all_close(values_of(args.out), want.d, bound));
      }
    }
  }
}

// Where the plain product is not rounded, the fused form equals the product followed by the
// separate operation, bit for bit.
TEST_P(CpuGemmEpilogue, GatesLikeTheActivationOperation) {
  constexpr int64_t kRows = 9, kInter = 24, kK = 50;
  Tensor a(GetParam(), {kRows, kK}), b(GetParam(), {2 * kInter, kK});
  fill_normal(a, 1);
  fill_normal(b, 2, 0.2);
  const Tensor product(DType::f32, {kRows, 2 * kInter}), gated(DType::f32, {kRows, kInter});
  const Tensor gate(DType::f32, {kRows, kInter}), up(DType::f32, {kRows, kInter});
  cpu::gemm({.a = a, .b = b, .out = product});
  for (int64_t i = 0; i < kInter; i += 8) {
    cpu::copy(
        {.x = product.view().slice(1, 2 * i, 2 * i + 8), .out = gate.view().slice(1, i, i + 8)});
    cpu::copy(
        {.x = product.view().slice(1, 2 * i + 8, 2 * i + 16), .out = up.view().slice(1, i, i + 8)});
  }
  for (const Activation kind : kActivations) {
    const Tensor want(DType::f32, {kRows, kInter});
    cpu::activation({.x = gate, .up = up.view(), .out = want, .kind = kind});
    cpu::gemm({.a = a, .b = b, .out = gated, .activation = kind, .is_gated = true});
    EXPECT_TRUE(same_bytes(gated, want)) << static_cast<int>(kind);
  }
}

TEST_P(CpuGemmEpilogue, ARowHasTheSameBitsAloneAndInAnyBatch) {
  for (const bool is_gated : {false, true}) {
    for (const DType out_type : out_types()) {
      Operands operands(GetParam(), out_type,
                        {37, 80, 203, true, Activation::silu, is_gated, true});
      operands.fill_with_normal();
      const GemmArgs args = operands.args();
      cpu::gemm(args);
      for (const int count : {1, 3}) {
        const Threads threads(count);
        for (const int64_t rows : {1, 2, 5, 13}) {
          for (int64_t begin = 0; begin + rows <= 37; begin += rows) {
            const Tensor part(out_type, {rows, args.out.size(1)});
            GemmArgs some = args;
            some.a = args.a.slice(0, begin, begin + rows);
            some.residual = args.residual->slice(0, begin, begin + rows);
            some.out = part;
            cpu::gemm(some);
            ASSERT_EQ(std::memcmp(part.view().data, args.out.slice(0, begin, begin + rows).data,
                                  static_cast<size_t>(part.size_bytes())),
                      0)
                << rows << " rows from " << begin << ", " << count << " threads";
          }
        }
      }
    }
  }
}

TEST_P(CpuGemmEpilogue, TakesRowsThatLieApartAndWritesNothingBetweenThem) {
  GappedRows a(GetParam(), 9, 50, 13), b(GetParam(), 32, 50, 3), residual(GetParam(), 9, 16, 1);
  GappedRows out(GetParam(), 9, 16, 5);
  fill_integers(a.view(), 1, -2, 2);
  fill_integers(b.view(), 2, -2, 2);
  fill_integers(residual.view(), 3, -9, 9);
  GemmArgs args{.a = a.view(), .b = b.view(), .out = out.view()};
  args.activation = Activation::relu;
  args.is_gated = true;
  args.residual = residual.view();
  expect_exact(args);
  EXPECT_TRUE(out.gaps_untouched());
  args.out = residual.view();
  expect_exact(args);
  EXPECT_TRUE(residual.gaps_untouched());
}

// Each matrix of a batch is what a call of its own gives; b for each, or one for all.
TEST_P(CpuGemmEpilogue, ABatchIsItsMatrices) {
  constexpr int64_t kBatch = 3, kM = 5, kN = 32, kK = 20;
  Tensor a(GetParam(), {kBatch, kM, kK}), b(GetParam(), {kBatch, kN, kK}), bias(GetParam(), {kN});
  Tensor residual(GetParam(), {kBatch, kM, kN});
  fill_normal(a, 1);
  fill_normal(b, 2);
  fill_normal(bias, 3);
  fill_normal(residual, 4);
  const auto matrix = [](const TensorView& t, int64_t i) {
    return TensorView::contiguous(t.slice(0, i, i + 1).data, t.dtype, {t.size(1), t.size(2)});
  };
  for (const bool shares_b : {false, true}) {
    for (const bool has_epilogue : {false, true}) {
      const Tensor out(GetParam(), {kBatch, kM, kN});
      const TensorView one_b = matrix(b, 1);
      GemmArgs args{.a = a, .b = shares_b ? one_b : b.view(), .bias = bias.view(), .out = out};
      if (has_epilogue) args.activation = Activation::gelu;
      if (has_epilogue) args.residual = residual;
      cpu::gemm(args);
      for (int64_t i = 0; i < kBatch; ++i) {
        const Tensor alone(GetParam(), {kM, kN});
        GemmArgs one = args;
        one.a = matrix(a, i);
        one.b = shares_b ? one_b : matrix(b, i);
        one.out = alone;
        if (has_epilogue) one.residual = matrix(residual, i);
        cpu::gemm(one);
        EXPECT_TRUE(all_equal(values_of(matrix(out, i)), values_of(alone))) << "matrix " << i;
      }
    }
  }
}

// Heads side by side in a row: the stride of the batch is smaller than that of the rows.
TEST_P(CpuGemmEpilogue, TakesABatchInterleavedWithItsRows) {
  constexpr int64_t kBatch = 3, kM = 5, kN = 7, kK = 20;
  Tensor a(GetParam(), {kM, kBatch, kK}), b(GetParam(), {kBatch, kN, kK});
  const Tensor out(DType::f32, {kM, kBatch, kN});
  fill_integers(a, 1, -4, 4);
  fill_integers(b, 2, -4, 4);
  cpu::gemm({.a = a.view().transposed(0, 1), .b = b, .out = out.view().transposed(0, 1)});
  for (int64_t i = 0; i < kM; ++i) {
    for (int64_t h = 0; h < kBatch; ++h) {
      for (int64_t j = 0; j < kN; ++j) {
        float want = 0.0f;
        for (int64_t l = 0; l < kK; ++l) {
          want += load_as_float(a, Index{i, h, l}) * load_as_float(b, Index{h, j, l});
        }
        ASSERT_EQ(load_as_float(out, Index{i, h, j}), want);
      }
    }
  }
}

TEST_P(CpuGemmEpilogue, ABatchOfNoneTouchesNothing) {
  const Tensor a(GetParam(), {0, 4, 8}), b(GetParam(), {6, 8}), out(GetParam(), {0, 4, 6});
  EXPECT_NO_THROW(cpu::gemm({.a = a, .b = b, .out = out}));
}

TEST_P(CpuGemmEpilogue, FiniteCodesSaturateAndE4m3HasNanForTheRest) {
  const Tensor a = tensor_of(GetParam(), {5, 1}, {1000.0, -1000.0, kInfinity, kNan, 3.0});
  const Tensor b = tensor_of(GetParam(), {1, 1}, {1.0});
  const Tensor scale = tensor_of(DType::f32, {1}, {2.0});
  const Tensor bytes(DType::i8, {5, 1}), floats(DType::e4m3, {5, 1});
  cpu::gemm({.a = a, .b = b, .out = bytes, .out_scale = scale});
  EXPECT_TRUE(all_equal(values_of(bytes), {127.0, -127.0, 127.0, 0.0, 2.0}));  // 1.5 ties to even
  cpu::gemm({.a = a, .b = b, .out = floats, .out_scale = scale});
  EXPECT_TRUE(all_equal(values_of(floats), {448.0, -448.0, kNan, kNan, 1.5}));
}

INSTANTIATE_TEST_SUITE_P(EveryType, CpuGemmEpilogue, ::testing::ValuesIn(kFloatTypes), dtype_name);

}  // namespace
}  // namespace tessera::testing
