// The matrix product of two quantised operands on the CPU: sums of codes, then their scales.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "core/parallel.h"
#include "cpu/elementwise.h"
#include "cpu/float_row.h"
#include "cpu/gemm.h"
#include "cpu/quant_code.h"

namespace tessera::cpu {
namespace {

// Rows of b whose codes are decoded at once; each is then multiplied with all rows of a.
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

// The sum over some of k: integers exactly, e4m3 in float. The products of two of its codes are
// exact there.
int32_t dot(const int16_t* a, const int16_t* b, int64_t count) {
  int32_t sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += int32_t{a[i]} * b[i];
  return sum;
}
float dot(const float* a, const float* b, int64_t count) {
  constexpr int64_t kLanes = 16;  // partial sums, so that the loop vectorises
  float sums[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  }
  float sum = 0;
  for (; i < count; ++i) sum += a[i] * b[i];
  for (const float lane : sums) sum += lane;
  return sum;
}

template <class Number>
void decode_row(const TensorView& codes, int64_t row, std::vector<float>& floats, Number* out) {
  const int64_t k = codes.size(1);
  load_codes(codes, row * codes.stride(0), k, codes.dtype != DType::u8, floats.data());
  for (int64_t i = 0; i < k; ++i) out[i] = static_cast<Number>(floats[static_cast<size_t>(i)]);
}

// Number holds a code: int16_t for integers, float for e4m3.
template <class Number>
void multiply(const GemmArgs& args, float* products) {
  const int64_t m = args.a.size(0), n = args.b.n(), k = args.a.size(1);
  const TokenScales a_scales(args);
  const ScaleLayout b_scales = scale_layout(args.b);
  const float* b_scale = args.b.scale->as<float>();
  const int64_t segment = std::min(a_scales.cols, b_scales.cols_per_scale);
  std::vector<Number> a(static_cast<size_t>(m * k));
  parallel_for(m, k, [&](int64_t row) {
    std::vector<float> floats(static_cast<size_t>(k));
    decode_row(args.a, row, floats, a.data() + row * k);
  });
  const int64_t num_tasks = (n + kRowsAtOnce - 1) / kRowsAtOnce;
  parallel_for(num_tasks, kRowsAtOnce * m * k, [&](int64_t task) {
    std::vector<float> floats(static_cast<size_t>(k));
    std::vector<Number> b(static_cast<size_t>(k));
    for (int64_t col = task * kRowsAtOnce; col < std::min(n, (task + 1) * kRowsAtOnce); ++col) {
      decode_row(args.b.values, col, floats, b.data());
      const float* scales = b_scale + col / b_scales.rows_per_scale * b_scales.scales_per_row;
      for (int64_t row = 0; row < m; ++row) {
        float sum = 0;
        for (int64_t first = 0; first < k; first += segment) {
          const int64_t count = std::min(segment, k - first);
          auto part = dot(a.data() + row * k + first, b.data() + first, count);
          if constexpr (std::is_integral_v<Number>) {
            if (a_scales.zero_point != nullptr) {
              int32_t b_sum = 0;
              for (int64_t i = 0; i < count; ++i) b_sum += b[static_cast<size_t>(first + i)];
              part -= a_scales.zero_point[row * a_scales.zero_step] * b_sum;
            }
          }
          const float scale = a_scales.scale[row * a_scales.row_step + first / a_scales.cols] *
                              scales[first / b_scales.cols_per_scale];
          sum = segment < k ? std::fma(static_cast<float>(part), scale, sum)
                            : static_cast<float>(part) * scale;
        }
        products[row * n + col] = sum;
      }
    }
  });
}

}  // namespace

void multiply_codes(const GemmArgs& args, float* products) {
  if (args.a.dtype == DType::e4m3) {
    multiply<float>(args, products);
  } else {
    multiply<int16_t>(args, products);
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
