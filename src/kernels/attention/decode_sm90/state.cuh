// What is known of some keys: the softmax state (reference, sum, weighted values) of every query,
// and the one way two of them become one.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/attention/online_softmax.cuh"
#include "tile/unroll.cuh"

namespace tessera::kernels {

inline constexpr float kMinusInfinity = -__builtin_huge_valf();

// Two states over the same query, of earlier and of later keys: what each one's sums are multiplied
// with, and the reference of the result. A state without keys has a sum of 0 and changes nothing,
// not one bit.
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

// Four elements of one query's state. Where codes have a smallest value or a base, all elements of
// a query lack the same offset, which is added in the end.
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

// Neighbours first: the order in which kCount states are always folded.
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
