// Tensors for tests: made from a function of the index, read as doubles, with the spacing of each
// type for bounds on errors.
// SPDX-License-Identifier: MIT
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tessera/core/tensor.h"

namespace tessera::testing {

using Index = std::vector<int64_t>;
using Values = std::vector<double>;  // the elements of a view in row-major order

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Calls f(index) for every index of the view, the last axis fastest.
inline void for_each_index(const TensorView& view, const std::function<void(const Index&)>& f) {
  Index index(static_cast<size_t>(view.rank), 0);
  for (int64_t i = 0; i < view.num_elements(); ++i) {
    f(index);
    for (int d = view.rank - 1; d >= 0; --d) {
      int64_t& along = index[static_cast<size_t>(d)];
      if (++along < view.size(d)) break;
      along = 0;
    }
  }
}

inline Values values_of(const TensorView& view) {
  Values values;
  for_each_index(view, [&](const Index& index) { values.push_back(load_as_float(view, index)); });
  return values;
}

inline void fill(const TensorView& view, const std::function<double()>& next) {
  for_each_index(
      view, [&](const Index& index) { store_from_float(view, index, static_cast<float>(next())); });
}

inline void set_values(const TensorView& view, const Values& values) {
  size_t i = 0;
  fill(view, [&] { return values[i++ % values.size()]; });
}

inline Tensor tensor_of(DType dtype, const Index& shape, const Values& values) {
  Tensor tensor(dtype, shape);
  set_values(tensor, values);
  return tensor;
}

inline void fill_normal(const TensorView& view, uint64_t seed, double spread = 1.0) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(0.0, spread);
  fill(view, [&] { return normal(random); });
}

inline void fill_integers(const TensorView& view, uint64_t seed, int low, int high) {
  std::mt19937_64 random(seed);
  std::uniform_int_distribution<int> integer(low, high);
  fill(view, [&] { return static_cast<double>(integer(random)); });
}

// A view [rows, cols] whose rows lie `gap` elements apart, inside memory filled with a mark that
// a write outside the view would change.
class GappedRows {
 public:
  GappedRows(DType dtype, int64_t rows, int64_t cols, int64_t gap)
      : memory_(dtype, {rows, cols + gap}), cols_(cols) {
    fill(memory_, [] { return kMark; });
  }
  TensorView view() const { return memory_.view().slice(1, 0, cols_); }
  bool gaps_untouched() const {
    const Values gaps = values_of(memory_.view().slice(1, cols_, memory_.view().size(1)));
    return std::all_of(gaps.begin(), gaps.end(), [](double value) { return value == kMark; });
  }

 private:
  static constexpr double kMark = 3.0;
  Tensor memory_;
  int64_t cols_;
};

// The distance between neighbouring values of a floating-point type around `value`.
inline double spacing(DType dtype, double value) {
  struct Format {
    int mantissa_bits, min_exponent;
  };
  const auto format = [dtype]() -> Format {
    switch (dtype) {
      case DType::f16: return {10, -14};
      case DType::bf16: return {7, -126};
      case DType::e4m3: return {3, -6};
      case DType::e5m2: return {2, -14};
      default: return {23, -126};
    }
  }();
  const int exponent = value == 0.0 ? format.min_exponent : std::ilogb(value);
  return std::ldexp(1.0, std::max(exponent, format.min_exponent) - format.mantissa_bits);
}

inline constexpr double kFloatUnit = 0x1p-24;  // the relative error of one rounding to float

// The error of rounding once, half the spacing, plus an error made before it.
inline double rounded_once(DType dtype, double value, double error_before = 0.0) {
  return error_before + spacing(dtype, std::fabs(value) + error_before) / 2.0;
}

// Compares with a bound for each element, and reports the worst.
inline ::testing::AssertionResult all_close(const Values& got, const Values& want,
                                            const Values& bound) {
  if (got.size() != want.size() || got.size() != bound.size()) {
    return ::testing::AssertionFailure() << got.size() << " elements; expected " << want.size();
  }
  size_t worst = 0;
  double worst_excess = -1.0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(want[i]) && std::isnan(got[i])) continue;
    if (got[i] == want[i]) continue;
    const double excess = std::fabs(got[i] - want[i]) / bound[i];
    if (!(excess <= worst_excess)) worst = i, worst_excess = excess;
    if (std::isnan(excess)) break;
  }
  if (worst_excess <= 1.0) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << "element " << worst << " is " << got[worst] << "; expected " << want[worst]
         << " within " << bound[worst] << " (" << worst_excess << " of the bound)";
}

inline ::testing::AssertionResult all_equal(const Values& got, const Values& want) {
  return all_close(got, want, Values(want.size(), std::numeric_limits<double>::min()));
}

inline bool same_bytes(const Tensor& a, const Tensor& b) {
  return a.size_bytes() == b.size_bytes() &&
         std::memcmp(a.view().data, b.view().data, static_cast<size_t>(a.size_bytes())) == 0;
}

// Every test of a float type runs for the three of them.
inline constexpr std::array kFloatTypes = {DType::f32, DType::f16, DType::bf16};
inline std::string dtype_name(const ::testing::TestParamInfo<DType>& info) {
  return std::string(name(info.param));
}

}  // namespace tessera::testing
