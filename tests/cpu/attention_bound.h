// What attention over pages should give, and how far the vectorised implementation may be from it.
// SPDX-License-Identifier: MIT
#pragma once

#include "tessera/core/convert.h"
#include "tests/cpu/attention_case.h"

namespace tessera::testing {

inline constexpr double kLog2E = 1.4426950408889634;

inline double value_at(const Tensor& tensor, int64_t token, int64_t head, int64_t i) {
  const TensorView& view = tensor;
  const int64_t element = token * view.stride(0) + head * view.stride(1) + i;
  switch (view.dtype) {
    case DType::f16: return to_float(view.as<F16>()[element]);
    case DType::bf16: return to_float(view.as<Bf16>()[element]);
    default: return view.as<float>()[element];
  }
}

// One query's output in float64, and how far the float one may be from it.
//
// With u = 2^-24 and scores in base 2, x_j = scale log2(e) (q . k_j), first order in u:
//  - a product of head_dim terms is off by (head_dim + 2) u of the sum of their sizes (2 for the
//    levels that round a product before they add it), and the score by 2 u |x_j| more: the factor
//    and its multiplication. A cap adds 12 u cap: 2^-|x|, two sums, a quotient, a product.
//  - the exponent x_j - m and the decays from one block's maximum to the next are together off by
//    u (m - x_j), since they add up to m - x_j;
//  - each 2^x, one for the weight and one a block for the decays, is off by 3 u (1.5 ulp), and each
//    decay multiplies once more: 4 u a block.
// That is eps_j relative to each weight. Sums over n keys are off by n u each, the quotient by u.
// So the output is off by sum_j p_j |v_j| (eps_j + mean eps + (2 n + 2) u); 1.02 covers the second
// order. Rounding to the dtype comes on top.
struct Expected {
  Values want, bound;
};

inline void expect_query(const HeadShape& shape, const Part& part, int64_t token, int64_t head,
                         const Scores& scores, Expected& expected) {
  const int64_t position = part.seq_len - part.num_queries + token;
  const int64_t kv_head = head / (shape.num_heads / shape.num_kv_heads);
  const int64_t first = scores.window == 0 ? 0 : std::max<int64_t>(0, position - scores.window + 1);
  const double dim = static_cast<double>(shape.head_dim);
  const double scale = scores.scale != 0.0f ? scores.scale : 1.0 / std::sqrt(dim);
  const double cap = scores.softcap;
  Values x, eps;
  for (int64_t key = first; key <= position; ++key) {
    double product = 0.0, size = 0.0;
    for (int64_t i = 0; i < shape.head_dim; ++i) {
      const double term = value_at(part.sequence->q, position, head, i) *
                          value_at(part.sequence->k, key, kv_head, i);
      product += term;
      size += std::fabs(term);
    }
    const double raw = scale * product;
    x.push_back(kLog2E * (cap == 0.0 ? raw : cap * std::tanh(raw / cap)));
    eps.push_back(((dim + 2.0) * std::fabs(scale) * kLog2E * size + 2.0 * kLog2E * std::fabs(raw) +
                   12.0 * kLog2E * cap) *
                  kFloatUnit);
  }
  const double n = static_cast<double>(x.size()), num_blocks = std::ceil(n / 64.0) + 1.0;
  const double maximum = x.empty() ? 0.0 : *std::max_element(x.begin(), x.end());
  double sum = 0.0, mean_eps = 0.0;
  for (size_t j = 0; j < x.size(); ++j) {
    eps[j] = std::log(2.0) * (eps[j] + kFloatUnit * (maximum - x[j])) +
             (3.0 + 4.0 * num_blocks) * kFloatUnit;
    x[j] = std::exp2(x[j] - maximum);
    sum += x[j];
    mean_eps += x[j] * eps[j];
  }
  mean_eps /= sum;
  for (int64_t i = 0; i < shape.head_dim; ++i) {
    double out = 0.0, error = 0.0;
    for (size_t j = 0; j < x.size(); ++j) {
      const double v = value_at(part.sequence->v, first + static_cast<int64_t>(j), kv_head, i);
      out += x[j] / sum * v;
      error += x[j] / sum * std::fabs(v) * (eps[j] + mean_eps + (2.0 * n + 2.0) * kFloatUnit);
    }
    expected.want.push_back(x.empty() ? 0.0 : out);
    expected.bound.push_back(rounded_once(shape.dtype, out, 1.02 * error));
  }
}

}  // namespace tessera::testing
