// Softmax over rows on the CPU, with scale and mask.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/elementwise.h"
#include "cpu/float_row.h"
#include "cpu/parallel.h"
#include "cpu/reduce_row.h"

namespace tessera::cpu {
namespace {

constexpr float kHidden = -std::numeric_limits<float>::infinity();

// A hidden element is minus infinity whatever x holds there, NaN included.
void apply_mask(const TensorView& mask, int64_t row, int64_t num_cols, float* values) {
  const Rows rows = as_rows(mask, "mask");
  const int64_t offset = row % rows.num_rows * rows.row_stride;
  if (mask.dtype == DType::u8) {
    const uint8_t* visible = mask.as<uint8_t>() + offset;
    for (int64_t i = 0; i < num_cols; ++i) values[i] = visible[i] != 0 ? values[i] : kHidden;
  } else {
    const float* added = mask.as<float>() + offset;
    for (int64_t i = 0; i < num_cols; ++i) {
      values[i] = added[i] == kHidden ? kHidden : values[i] + added[i];
    }
  }
}

// The largest element, NaN passed over: a NaN comes back through the sum.
float largest(const float* values, int64_t count) {
  float result = kHidden;
  for (int64_t i = 0; i < count; ++i) result = values[i] > result ? values[i] : result;
  return result;
}

bool has_nan(const float* values, int64_t count) {
  return std::any_of(values, values + count, [](float value) { return std::isnan(value); });
}

void softmax_row(float* values, int64_t count) {
  const float top = largest(values, count);
  if (top == kHidden && !has_nan(values, count)) {
    std::fill(values, values + count, 0.0f);
    return;
  }
  for (int64_t i = 0; i < count; ++i) values[i] = std::exp(values[i] - top);
  const double sum = sum_row(values, count, [](float value) { return double{value}; });
  const float inverse = static_cast<float>(1.0 / sum);
  for (int64_t i = 0; i < count; ++i) values[i] *= inverse;
}

template <class T>
void softmax_rows(const SoftmaxArgs& args) {
  const Rows x = as_rows(args.x, "x");
  const Rows out = as_rows(args.out, "out");
  for_each_row(x.num_rows, x.num_cols, x.num_cols, [&](int64_t row, float* values) {
    load_row(args.x.as<T>() + row * x.row_stride, x.num_cols, values);
    for (int64_t i = 0; i < x.num_cols; ++i) values[i] *= args.scale;
    if (args.mask) apply_mask(*args.mask, row, x.num_cols, values);
    softmax_row(values, x.num_cols);
    store_row(values, x.num_cols, args.out.as<T>() + row * out.row_stride);
  });
}

}  // namespace

void softmax(const SoftmaxArgs& args) {
  with_float_type(args.x.dtype, [&](auto type) { softmax_rows<decltype(type)>(args); });
}

}  // namespace tessera::cpu
