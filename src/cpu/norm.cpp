// RMSNorm and LayerNorm on the CPU, with residual and quantised output.
// SPDX-License-Identifier: MIT
#include <cmath>

#include "cpu/elementwise.h"
#include "cpu/float_row.h"
#include "cpu/parallel.h"
#include "cpu/quant_code.h"
#include "cpu/reduce_row.h"

namespace tessera::cpu {
namespace {

// h: x, or the residual after x was added to it, as it is stored.
template <class T, class Args>
void load_hidden(const Args& args, const Rows& x, int64_t row, float* h) {
  load_row(args.x.template as<T>() + row * x.row_stride, x.num_cols, h);
  if (!args.residual) return;
  T* residual =
      args.residual->template as<T>() + row * as_rows(*args.residual, "residual").row_stride;
  for (int64_t i = 0; i < x.num_cols; ++i) {
    residual[i] = from_float<T>(to_float(residual[i]) + h[i]);
    h[i] = to_float(residual[i]);
  }
}

template <class T>
void normalize(const RmsNormArgs& args, int64_t hidden, float* h) {
  const double sum = sum_row(h, hidden, [](float v) { return double{v} * double{v}; });
  const double mean_square = sum / static_cast<double>(hidden);
  const float inverse = static_cast<float>(1.0 / std::sqrt(mean_square + double{args.eps}));
  const T* weight = args.weight.template as<T>();
  for (int64_t i = 0; i < hidden; ++i) h[i] = h[i] * inverse * to_float(weight[i]);
}

// The mean is subtracted in double: a float mean would cost accuracy where it is much larger than
// the spread.
template <class T>
void normalize(const LayerNormArgs& args, int64_t hidden, float* h) {
  const double count = static_cast<double>(hidden);
  const double mean = sum_row(h, hidden, [](float v) { return double{v}; }) / count;
  const auto square = [mean](float v) { return (double{v} - mean) * (double{v} - mean); };
  const double variance = sum_row(h, hidden, square) / count;
  const float inverse = static_cast<float>(1.0 / std::sqrt(variance + double{args.eps}));
  const T* weight = args.weight.template as<T>();
  const T* bias = args.bias ? args.bias->template as<T>() : nullptr;
  for (int64_t i = 0; i < hidden; ++i) {
    h[i] = static_cast<float>(double{h[i]} - mean) * inverse * to_float(weight[i]);
  }
  if (bias == nullptr) return;
  for (int64_t i = 0; i < hidden; ++i) h[i] += to_float(bias[i]);
}

template <class Code, class Args>
void store_codes(const Args& args, int64_t row, const float* y, int64_t hidden, Code* out) {
  float scale = 1.0f;
  if (args.token_scale) {
    scale = scale_for(range_of(y, hidden).absmax(), quant_max(dtype_of<Code>));
    args.token_scale->template as<float>()[row] = scale;
  } else {
    scale = *args.static_scale->template as<float>();
  }
  const float inverse = 1.0f / scale;
  for (int64_t i = 0; i < hidden; ++i) out[i] = byte_code<Code>(y[i] * inverse);
}

template <class T, class Args>
void normalize_rows(const Args& args) {
  const Rows x = as_rows(args.x, "x");
  const Rows out = as_rows(args.out, "out");
  for_each_row(x.num_rows, x.num_cols, x.num_cols, [&](int64_t row, float* h) {
    load_hidden<T>(args, x, row, h);
    normalize<T>(args, x.num_cols, h);
    const int64_t offset = row * out.row_stride;
    if (args.out.dtype == DType::e4m3) {
      store_codes(args, row, h, x.num_cols, args.out.template as<E4m3>() + offset);
    } else if (args.out.dtype == DType::i8) {
      store_codes(args, row, h, x.num_cols, args.out.template as<int8_t>() + offset);
    } else {
      store_row(h, x.num_cols, args.out.template as<T>() + offset);
    }
  });
}

}  // namespace

void rms_norm(const RmsNormArgs& args) {
  with_float_type(args.x.dtype, [&](auto type) { normalize_rows<decltype(type)>(args); });
}

void layer_norm(const LayerNormArgs& args) {
  with_float_type(args.x.dtype, [&](auto type) { normalize_rows<decltype(type)>(args); });
}

}  // namespace tessera::cpu
