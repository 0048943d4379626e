// Row reductions and argmax on the CPU against float64.
// SPDX-License-Identifier: MIT
#include "cpu/elementwise.h"
#include "tests/cpu/tensors.h"

namespace tessera::testing {
namespace {

constexpr Reduction kReductions[] = {Reduction::sum, Reduction::mean, Reduction::max,
                                     Reduction::min, Reduction::absmax};

double reference(Reduction kind, const double* row, size_t count) {
  double sum = 0.0, top = -kInfinity, bottom = kInfinity, absmax = 0.0;
  for (size_t i = 0; i < count; ++i) {
    sum += row[i];
    top = std::max(top, row[i]);
    bottom = std::min(bottom, row[i]);
    absmax = std::max(absmax, std::fabs(row[i]));
  }
  switch (kind) {
    case Reduction::sum: return sum;
    case Reduction::mean: return sum / static_cast<double>(count);
    case Reduction::max: return top;
    case Reduction::min: return bottom;
    case Reduction::absmax: return absmax;
  }
  return 0.0;
}

Values reduced(const TensorView& x, Reduction kind) {
  Tensor out(DType::f32, {x.num_elements() / std::max<int64_t>(x.size(-1), 1)});
  cpu::reduce({.x = x, .out = out, .kind = kind});
  return values_of(out);
}

class CpuReduce : public ::testing::TestWithParam<DType> {};

// Integers sum exactly; extremes always are exact; the mean is rounded once.
TEST_P(CpuReduce, IsExactOnIntegersForEveryWidth) {
  for (int64_t cols : {1, 2, 7, 8, 9, 100, 4097}) {
    GappedRows x(GetParam(), 4, cols, 3);
    fill_integers(x.view(), 1, -100, 100);
    const Values xs = values_of(x.view());
    for (Reduction kind : kReductions) {
      Values want;
      for (size_t row = 0; row < 4; ++row) {
        const size_t count = static_cast<size_t>(cols);
        want.push_back(static_cast<float>(reference(kind, &xs[row * count], count)));
      }
      EXPECT_TRUE(all_equal(reduced(x.view(), kind), want))
          << "cols " << cols << " kind " << static_cast<int>(kind);
    }
  }
}

// A sum in double rounded once: half an ulp of the result, and 2^-50 of the magnitudes summed.
TEST_P(CpuReduce, IsCloseOnRandomRows) {
  constexpr size_t kCols = 3001;
  Tensor x(GetParam(), {3, kCols});
  fill_normal(x, 2, 30.0);
  const Values xs = values_of(x);
  for (Reduction kind : kReductions) {
    Values want, bound;
    for (size_t row = 0; row < 3; ++row) {
      want.push_back(reference(kind, &xs[row * kCols], kCols));
      double magnitude = 0.0;
      for (size_t i = 0; i < kCols; ++i) magnitude += std::fabs(xs[row * kCols + i]);
      bound.push_back(rounded_once(DType::f32, want[row], 0x1p-50 * magnitude));
    }
    EXPECT_TRUE(all_close(reduced(x, kind), want, bound)) << "kind " << static_cast<int>(kind);
  }
}

TEST_P(CpuReduce, NanGivesNanWhereverItStands) {
  for (size_t place : {0, 1, 8, 16}) {
    Values row(17, -1.0);
    row[place] = kNan;
    const Tensor x = tensor_of(GetParam(), {1, 17}, row);
    for (Reduction kind : kReductions) EXPECT_TRUE(std::isnan(reduced(x, kind)[0]));
  }
}

TEST_P(CpuReduce, InfinitiesAreNumbersToo) {
  const Tensor x = tensor_of(GetParam(), {2, 2}, {-kInfinity, -kInfinity, kInfinity, kInfinity});
  for (Reduction kind : {Reduction::max, Reduction::min, Reduction::sum}) {
    EXPECT_TRUE(all_equal(reduced(x, kind), {-kInfinity, kInfinity}));
  }
  EXPECT_TRUE(all_equal(reduced(x, Reduction::absmax), {kInfinity, kInfinity}));
}

TEST_P(CpuReduce, NoColumnsSumToZeroAndNoRowsToNothing) {
  Tensor no_cols(GetParam(), {3, 0}), no_rows(GetParam(), {0, 3});
  for (Reduction kind : {Reduction::sum, Reduction::absmax}) {
    Tensor out = tensor_of(DType::f32, {3}, {9.0});
    cpu::reduce({.x = no_cols, .out = out, .kind = kind});
    EXPECT_TRUE(all_equal(values_of(out), {0.0, 0.0, 0.0}));
  }
  for (Reduction kind : kReductions) EXPECT_TRUE(reduced(no_rows, kind).empty());
}

TEST_P(CpuReduce, ArgmaxTakesTheFirstOfEqualsAndNanFirst) {
  const Tensor x = tensor_of(
      GetParam(), {6, 4}, {1,          3,          3,          2,     //
                           -5,         -5,         -5,         -5,    //
                           9,          kNan,       kInfinity,  kNan,  //
                           -kInfinity, -kInfinity, -kInfinity, -1e4,  //
                           -kInfinity, -kInfinity, -kInfinity, -kInfinity, -0.0, 0.0, 0.0, -0.0});
  for (DType index : {DType::i32, DType::i64}) {
    Tensor out(index, {6});
    cpu::argmax({.x = x, .out = out});
    EXPECT_TRUE(all_equal(values_of(out), {1, 0, 1, 3, 0, 0})) << name(index);
  }
}

TEST_P(CpuReduce, ArgmaxFindsALoneMaximumAnywhere) {
  constexpr int64_t kCols = 131;
  GappedRows x(GetParam(), kCols, kCols, 2);
  Values want;
  for_each_index(x.view(), [&](const Index& at) {
    store_from_float(x.view(), at, at[0] == at[1] ? 1.0f : -static_cast<float>(at[1]));
  });
  for (int64_t row = 0; row < kCols; ++row) want.push_back(static_cast<double>(row));
  Tensor out(DType::i64, {kCols});
  cpu::argmax({.x = x.view(), .out = out});
  EXPECT_TRUE(all_equal(values_of(out), want));
}

INSTANTIATE_TEST_SUITE_P(EveryFloatType, CpuReduce, ::testing::ValuesIn(kFloatTypes), dtype_name);

}  // namespace
}  // namespace tessera::testing
