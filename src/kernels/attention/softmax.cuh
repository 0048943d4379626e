// The softmax state (m, l, o) of a query over some of its keys, and the ways two or more states
// become one. Split-KV decode, the merge kernel and every prefill kernel use these functions.
// SPDX-License-Identifier: MIT
//
// m is a reference that is subtracted from every score, l the sum of the weights 2^(score - m), o
// the sum of the weighted values, which is divided by l at the end. Exponentials are powers of two:
// `scale` turns a score into an exponent (the softmax scale times log2(e)) and goes into one fma
// with the reference that is subtracted.
#pragma once

#include <cmath>

#include "tile/unroll.cuh"

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
  float max = -INFINITY;  // of the scores so far
  float sum = 0.0f;       // of the weights, over the columns this thread holds

  // Adds a block of scores whose maximum over the whole row is `largest`. Returns the factor that
  // everything summed so far must be multiplied by: exactly 1 if the maximum stays.
  __device__ float raise(float largest, float scale) {
    const float before = max;
    max = fmaxf(before, largest);
    const float shrink = exp2_approx((before - finite_max()) * scale);
    sum *= shrink;
    return shrink;
  }

  // What is subtracted from exponents. A row that has seen only masked keys subtracts 0, so that
  // their weights are 0 and not NaN.
  __device__ float offset(float scale) const { return finite_max() * scale; }
  __device__ float finite_max() const { return max == -INFINITY ? 0.0f : max; }
};

__device__ __forceinline__ float softmax_weight(float score, float scale, float offset) {
  return exp2_approx(fmaf(score, scale, -offset));
}

// What normalises a row once all blocks are done.
struct RowEnd {
  float factor;  // of the sum of weighted values; 0 if the row saw no key
  float lse;     // natural logarithm
};

// `row.sum` is over all columns. `sink` is a score in natural units; minus infinity: none.
__device__ inline RowEnd finish_row(const SoftmaxRow& row, float scale, float sink) {
  if (row.sum == 0.0f) return {0.0f, sink};
  const float offset = row.offset(scale);
  const float top = fmaxf(offset, sink * kLog2e);
  const float shrink = exp2_approx(offset - top);
  const float total = row.sum * shrink + exp2_approx(sink * kLog2e - top);
  return {shrink / total, (top + log2f(total)) * kLn2};
}

// Many states at once: what a state with the maximum `max` is multiplied by, relative to the
// largest maximum of all. Maxima are natural logarithms. The caller adds up l and o in the order of
// the keys.
__device__ __forceinline__ float state_factor(float max, const SoftmaxRow& total) {
  return exp2_approx((max - total.finite_max()) * kLog2e);
}

inline constexpr float kMinusInfinity = -__builtin_huge_valf();

// Two states of one query, over earlier and over later keys: the factors of each one's sums and the
// reference of the result. A state without keys has a sum of 0 and changes no bit of the other.
struct Fold {
  float reference;
  float earlier;
  float later;

  __device__ __forceinline__ float operator()(float x, float y) const {
    return fmaf(y, later, x * earlier);
  }
  __device__ __forceinline__ float4 operator()(const float4& x, const float4& y) const {
    return {(*this)(x.x, y.x), (*this)(x.y, y.y), (*this)(x.z, y.z), (*this)(x.w, y.w)};
  }
};

__device__ __forceinline__ Fold fold(float reference_x, float sum_x, float reference_y,
                                     float sum_y) {
  const float x = sum_x > 0 ? reference_x : kMinusInfinity;
  const float y = sum_y > 0 ? reference_y : kMinusInfinity;
  const float top = fmaxf(x, y);
  return {top, sum_x > 0 ? exp2_approx(x - top) : 0.0f, sum_y > 0 ? exp2_approx(y - top) : 0.0f};
}

// Four elements of one query's state. Where codes have a low or a base, every element of o lacks
// the same offset, which is added at the end.
template <bool kHasOffset>
struct QuadState {
  float reference;
  float sum;
  float offset;
  float4 o;
};

template <bool kHasOffset>
__device__ __forceinline__ QuadState<kHasOffset> fold(const QuadState<kHasOffset>& x,
                                                      const QuadState<kHasOffset>& y) {
  const Fold f = fold(x.reference, x.sum, y.reference, y.sum);
  return {f.reference, f(x.sum, y.sum), kHasOffset ? f(x.offset, y.offset) : 0.0f, f(x.o, y.o)};
}

// Neighbours first: the one order in which kCount states are folded.
template <bool kHasOffset, int kCount>
__device__ __forceinline__ QuadState<kHasOffset> fold_all(QuadState<kHasOffset> (&states)[kCount]) {
  TESSERA_UNROLL
  for (int step = 1; step < kCount; step *= 2) {
    TESSERA_UNROLL
    for (int i = 0; i + step < kCount; i += 2 * step) states[i] = fold(states[i], states[i + step]);
  }
  return states[0];
}

}  // namespace tessera::kernels
