// Row reductions and argmax on the CPU.
// SPDX-License-Identifier: MIT
#include <cmath>
#include <limits>

#include "cpu/elementwise.h"
#include "cpu/float_row.h"
#include "cpu/parallel.h"
#include "cpu/reduce_row.h"

namespace tessera::cpu {
namespace {

// Keeps the element that is_better prefers, or NaN if there is one.
template <class Better>
float extreme(const float* row, int64_t count, float start, Better&& is_better) {
  float result = start;
  bool has_nan = false;
  for (int64_t i = 0; i < count; ++i) {
    result = is_better(row[i], result) ? row[i] : result;
    has_nan |= row[i] != row[i];
  }
  return has_nan ? std::numeric_limits<float>::quiet_NaN() : result;
}

float reduce_row(Reduction kind, float* row, int64_t count) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto greater = [](float a, float b) { return a > b; };
  const auto less = [](float a, float b) { return a < b; };
  const auto itself = [](float value) { return double{value}; };
  switch (kind) {
    case Reduction::sum: return static_cast<float>(sum_row(row, count, itself));
    case Reduction::mean:
      return static_cast<float>(sum_row(row, count, itself) / static_cast<double>(count));
    case Reduction::max: return extreme(row, count, -kInfinity, greater);
    case Reduction::min: return extreme(row, count, kInfinity, less);
    case Reduction::absmax:
      for (int64_t i = 0; i < count; ++i) row[i] = std::fabs(row[i]);
      return extreme(row, count, 0.0f, greater);
  }
  return 0.0f;
}

// The first of the largest elements; NaN counts as larger than any number.
int64_t argmax_row(const float* row, int64_t count) {
  int64_t best = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (row[i] != row[i]) return i;
    if (row[i] > row[best]) best = i;
  }
  return best;
}

}  // namespace

void reduce(const ReduceArgs& args) {
  const Rows x = as_rows(args.x, "x");
  with_float_type(args.x.dtype, [&](auto type) {
    using T = decltype(type);
    for_each_row(x.num_rows, x.num_cols, x.num_cols, [&](int64_t row, float* values) {
      load_row(args.x.as<T>() + row * x.row_stride, x.num_cols, values);
      args.out.as<float>()[row] = reduce_row(args.kind, values, x.num_cols);
    });
  });
}

void argmax(const ArgmaxArgs& args) {
  const Rows x = as_rows(args.x, "x");
  with_float_type(args.x.dtype, [&](auto type) {
    using T = decltype(type);
    for_each_row(x.num_rows, x.num_cols, x.num_cols, [&](int64_t row, float* values) {
      load_row(args.x.as<T>() + row * x.row_stride, x.num_cols, values);
      const int64_t index = argmax_row(values, x.num_cols);
      if (args.out.dtype == DType::i32) {
        args.out.as<int32_t>()[row] = static_cast<int32_t>(index);
      } else {
        args.out.as<int64_t>()[row] = index;
      }
    });
  });
}

}  // namespace tessera::cpu
