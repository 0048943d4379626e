// The activation functions in float: accurate to the last bits for f32, and in a few instructions
// for 16-bit types, whose rounding hides a relative error of 2^-14.
// SPDX-License-Identifier: MIT
#pragma once

#include <type_traits>

#include "tessera/ops/activation.h"

namespace tessera::kernels {

inline constexpr float kLog2E = 1.4426950408889634f;

// PTX: ex2.approx, rcp.approx; both within 2^-22, both flush subnormals.
__device__ inline float approx_exp2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
__device__ inline float approx_reciprocal(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// x / (1 + 2^minus_t). The sum is scaled by 2^-32: without that, the power and the reciprocal would
// leave the range of float for minus_t above 126, where a bf16 result is still a normal number.
__device__ inline float approx_times_sigmoid(float x, float minus_t) {
  const float scaled_exp = approx_exp2(minus_t - 32.0f);
  return x * (approx_reciprocal(scaled_exp + 0x1p-32f) * 0x1p-32f);
}

// Phi(-|x|) = exp(-x^2 / 2) P(1 / (1 + 0.38 |x|)): P is the polynomial of least relative error,
// 2^-14.8, over |x| up to 14.6, where the result leaves the range of bf16. The power of two is
// scaled by 2^32 against flushing, and P by 2^-32.
__device__ inline float approx_normal_tail(float magnitude) {
  const float t = approx_reciprocal(fmaf(magnitude, 0.38f, 1.0f));
  float polynomial = -0.08992866309782645f * 0x1p-32f;
  polynomial = fmaf(polynomial, t, 0.188877231716035f * 0x1p-32f);
  polynomial = fmaf(polynomial, t, 0.09197910183564709f * 0x1p-32f);
  polynomial = fmaf(polynomial, t, 0.1578296869968716f * 0x1p-32f);
  polynomial = fmaf(polynomial, t, 0.15122511403208955f * 0x1p-32f);
  const float scaled_exp = approx_exp2(fmaf(magnitude * magnitude, -0.5f * kLog2E, 32.0f));
  return (polynomial * t) * scaled_exp;
}

// f(x), accurate enough to be rounded to T.
template <Activation kKind, class T>
__device__ inline float activate(float x) {
  constexpr bool kIsExact = std::is_same_v<T, float>;
  if constexpr (kKind == Activation::relu) {
    return x < 0.0f ? 0.0f : x;  // NaN stays NaN
  } else if constexpr (kKind == Activation::silu) {
    if constexpr (kIsExact) return x / (1.0f + expf(-x));
    return approx_times_sigmoid(x, -kLog2E * x);
  } else if constexpr (kKind == Activation::gelu) {
    // erfc, because 1 + erf cancels for negative x.
    if constexpr (kIsExact) return x * (0.5f * erfcf(x * -0.70710678118654752f));
    const float tail = approx_normal_tail(fabsf(x));
    return x * (x < 0.0f ? tail : 1.0f - tail);
  } else {
    static_assert(kKind == Activation::gelu_tanh);
    // 0.5 x (1 + tanh(u)) is x / (1 + exp(-2u)), which does not cancel for negative x.
    constexpr float kTwiceU = 2.0f * 0.79788456080286536f;
    if constexpr (kIsExact) {
      return x / (1.0f + expf(x * fmaf(x * x, -kTwiceU * 0.044715f, -kTwiceU)));
    }
    return approx_times_sigmoid(x,
                                x * fmaf(x * x, -kLog2E * kTwiceU * 0.044715f, -kLog2E * kTwiceU));
  }
}

}  // namespace tessera::kernels
