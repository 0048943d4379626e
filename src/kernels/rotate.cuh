// One pair of a rotary embedding. Each product is rounded, as on the CPU: a fused multiply-add
// would give other bits, and quantised keys could then differ by one code.
// SPDX-License-Identifier: MIT
#pragma once

namespace tessera::kernels {

//   (a, b) = (a cos - b sin, b cos + a sin)
__device__ inline float rotate_first(float a, float b, float cosine, float sine) {
  return __fsub_rn(__fmul_rn(a, cosine), __fmul_rn(b, sine));
}
__device__ inline float rotate_second(float a, float b, float cosine, float sine) {
  return __fadd_rn(__fmul_rn(b, cosine), __fmul_rn(a, sine));
}

}  // namespace tessera::kernels
