// The softmax of a row whose scores come block by block: its running maximum and sum.
// SPDX-License-Identifier: MIT
//
// Exponentials are powers of two: `scale` is what turns a score into its exponent, the softmax
// scale times log2(e), and goes into one fma with the maximum that is subtracted.
#pragma once

#include <cmath>

namespace tessera::kernels {

inline constexpr float kLog2e = 1.4426950408889634f;
inline constexpr float kLn2 = 0.6931471805599453f;

// 2^x with a relative error below 2^-22; exact for 0, and 0 for minus infinity.
// PTX: ex2.approx.ftz.f32.
__device__ __forceinline__ float exp2_approx(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

struct SoftmaxRow {
  float max = -INFINITY;  // of the scores met so far
  float sum = 0.0f;       // of the weights, over the columns this thread holds

  // Takes note of a block whose largest score is `largest`, over all columns of the row. Gives what
  // everything summed so far is to be multiplied by: exactly 1 where the maximum stays.
  __device__ float raise(float largest, float scale) {
    const float before = max;
    max = fmaxf(before, largest);
    const float shrink = exp2_approx((before - finite_max()) * scale);
    sum *= shrink;
    return shrink;
  }

  // What is taken off the exponents. A row that has met nothing but masked keys takes off 0, so
  // that their weights are 0 and not NaN.
  __device__ float offset(float scale) const { return finite_max() * scale; }
  __device__ float finite_max() const { return max == -INFINITY ? 0.0f : max; }
};

__device__ __forceinline__ float softmax_weight(float score, float scale, float offset) {
  return exp2_approx(fmaf(score, scale, -offset));
}

// What is left of a row when all blocks are met.
struct RowEnd {
  float factor;  // what the sum of weighted values is multiplied by; 0 if the row saw nothing
  float lse;     // natural logarithm
};

// `row.sum` is over all columns. `sink` is a score in natural units, minus infinity for none.
__device__ inline RowEnd finish_row(const SoftmaxRow& row, float scale, float sink) {
  if (row.sum == 0.0f) return {0.0f, sink};
  const float offset = row.offset(scale);
  const float top = fmaxf(offset, sink * kLog2e);
  const float shrink = exp2_approx(offset - top);
  const float total = row.sum * shrink + exp2_approx(sink * kLog2e - top);
  return {shrink / total, (top + log2f(total)) * kLn2};
}

}  // namespace tessera::kernels
