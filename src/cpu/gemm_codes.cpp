// The matrix product of two quantised operands on the CPU: sums of codes, then their scales.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <vector>

#include "core/parallel.h"
#include "cpu/elementwise.h"
#include "cpu/float_row.h"
#include "cpu/gemm.h"
#include "cpu/gemm_codes_kernel.h"
#include "cpu/quant_code.h"

namespace tessera::cpu {
namespace {

// Rows of b in one task; each is multiplied with all rows of a.
constexpr int64_t kRowsAtOnce = 8;

// Where the scales of a apply: one for `cols` elements of k, `per_row` of them in a row of a.
struct TokenScales {
  const float* scale;
  const int32_t* zero_point;  // null: 0
  int64_t cols, per_row;
  int64_t row_step, zero_step;  // 0 where one serves all rows

  explicit TokenScales(const GemmArgs& args)
      : scale(args.a_scale->as<float>()),
        zero_point(args.a_zero_point ? args.a_zero_point->as<int32_t>() : nullptr),
        cols(args.a_scale->rank == 2 ? kTokenGroup : std::max<int64_t>(1, args.a.size(1))),
        per_row(args.a_scale->rank == 2 ? args.a_scale->size(1) : 1),
        row_step(args.a_scale->num_elements() == 1 ? 0 : per_row),
        zero_step(args.a_zero_point && args.a_zero_point->num_elements() > 1 ? 1 : 0) {}
};

// A row of i8, u8 or i4 codes as wider integers.
template <class Number>
void widen_row(const TensorView& codes, int64_t row, Number* out) {
  const int64_t k = codes.size(1), first = row * codes.stride(0);
  const auto* bytes = codes.as<uint8_t>();
  switch (codes.dtype) {
    case DType::u8:
      for (int64_t i = 0; i < k; ++i) out[i] = static_cast<Number>(bytes[first + i]);
      return;
    case DType::i4:  // the even element in the low nibble, two's complement
      for (int64_t i = 0; i < k; ++i) {
        const int nibble = bytes[(first + i) / 2] >> 4 * (i % 2) & 15;
        out[i] = static_cast<Number>((nibble ^ 8) - 8);
      }
      return;
    default:
      for (int64_t i = 0; i < k; ++i) out[i] = static_cast<Number>(codes.as<int8_t>()[first + i]);
  }
}

// All rows of a, widened.
std::vector<int16_t> widened_rows(const TensorView& codes) {
  const int64_t m = codes.size(0), k = codes.size(1);
  std::vector<int16_t> rows(static_cast<size_t>(m * k));
  parallel_for(m, k, [&](int64_t row) { widen_row(codes, row, rows.data() + row * k); });
  return rows;
}

// Where scales apply, and how sums of integers become products.
struct Problem {
  const GemmArgs& args;
  int64_t m, n, k;
  TokenScales a_scales;
  ScaleLayout b_scales;
  int64_t segment;  // of k under one scale of each side

  explicit Problem(const GemmArgs& given)
      : args(given),
        m(given.a.size(0)),
        n(given.b.n()),
        k(given.a.size(1)),
        a_scales(given),
        b_scales(scale_layout(given.b)),
        segment(std::min(a_scales.cols, b_scales.cols_per_scale)) {}

  // Adds the sum over the segment at `first` to the product of a row and a column.
  float add(float sum, float part, int64_t row, int64_t col, int64_t first) const {
    const float* b_scale =
        args.b.scale->as<float>() + col / b_scales.rows_per_scale * b_scales.scales_per_row;
    const float scale = a_scales.scale[row * a_scales.row_step + first / a_scales.cols] *
                        b_scale[first / b_scales.cols_per_scale];
    return segment < k ? std::fma(part, scale, sum) : part * scale;
  }
};

// e4m3: rows of a as values, so that the product is that of a weight.
void multiply_floats(const GemmArgs& args, float* products) {
  const int64_t m = args.a.size(0), k = args.a.size(1);
  const TokenScales scales(args);
  Tensor values(DType::f32, {m, k});
  parallel_for(m, k, [&](int64_t row) {
    float* to = values.view().as<float>() + row * k;
    load_codes(args.a, row * args.a.stride(0), k, true, to);
    const float* scale = scales.scale + row * scales.row_step;
    for (int64_t first = 0; first < k; first += scales.cols, ++scale) {
      const int64_t end = std::min(k, first + scales.cols);
      for (int64_t i = first; i < end; ++i) to[i] *= *scale;
    }
  });
  gemm({.a = values.view(),
        .b = static_cast<const Weight&>(args.b),
        .out = TensorView::contiguous(products, DType::f32, {m, args.b.n()})});
}

void multiply_integers(const Problem& p, float* products) {
  static const SimdBuilds sum_rows = sum_code_rows_builds();
  const std::vector<int16_t> a = widened_rows(p.args.a);
  const int64_t num_tasks = (p.n + kRowsAtOnce - 1) / kRowsAtOnce;
  parallel_for(num_tasks, kRowsAtOnce * p.m * p.k, [&](int64_t task) {
    const TensorView& values = p.args.b.values;
    const bool is_i4 = values.dtype == DType::i4;
    std::vector<int32_t> sums(static_cast<size_t>(p.m));
    std::vector<int8_t> unpacked(static_cast<size_t>(is_i4 ? p.k : 0));
    const int64_t end = std::min(p.n, (task + 1) * kRowsAtOnce);
    for (int64_t col = task * kRowsAtOnce; col < end; ++col) {
      if (is_i4) widen_row(values, col, unpacked.data());
      const int8_t* b = is_i4 ? unpacked.data() : values.as<int8_t>() + col * values.stride(0);
      for (int64_t row = 0; row < p.m; ++row) products[row * p.n + col] = 0;
      for (int64_t first = 0; first < p.k; first += p.segment) {
        const int64_t count = std::min(p.segment, p.k - first);
        sum_rows.best()({.a = a.data() + first,
                         .b = b + first,
                         .sums = sums.data(),
                         .num_rows = p.m,
                         .count = count,
                         .a_stride = p.k});
        int32_t b_sum = 0;
        if (p.a_scales.zero_point != nullptr) {
          for (int64_t i = 0; i < count; ++i) b_sum += b[first + i];
        }
        for (int64_t row = 0; row < p.m; ++row) {
          int32_t sum = sums[static_cast<size_t>(row)];
          if (p.a_scales.zero_point != nullptr) {
            sum -= p.a_scales.zero_point[row * p.a_scales.zero_step] * b_sum;
          }
          float& product = products[row * p.n + col];
          product = p.add(product, static_cast<float>(sum), row, col, first);
        }
      }
    }
  });
}

}  // namespace

void multiply_codes(const GemmArgs& args, float* products) {
  if (args.a.dtype == DType::e4m3) {
    multiply_floats(args, products);
  } else {
    multiply_integers(Problem(args), products);
  }
  if (!args.bias) return;
  const int64_t n = args.b.n();
  std::vector<float> bias(static_cast<size_t>(n));
  with_float_type(args.bias->dtype, [&](auto type) {
    using T = decltype(type);
    for (int64_t i = 0; i < n; ++i) bias[static_cast<size_t>(i)] = to_float(args.bias->as<T>()[i]);
  });
  parallel_for(args.a.size(0), n, [&](int64_t row) {
    for (int64_t i = 0; i < n; ++i) products[row * n + i] += bias[static_cast<size_t>(i)];
  });
}

}  // namespace tessera::cpu
