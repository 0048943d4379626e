// Storage types to float and back on the device, with the rounding of core/convert.h.
// SPDX-License-Identifier: MIT
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "tessera/core/dtype.h"

namespace tessera::tile {

__device__ inline float to_float(float value) { return value; }
__device__ inline float to_float(F16 value) { return __half2float(__ushort_as_half(value.bits)); }
__device__ inline float to_float(Bf16 value) {
  return __uint_as_float(static_cast<uint32_t>(value.bits) << 16);
}
__device__ inline float to_float(E4m3 value) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(value.bits, __NV_E4M3)));
}
__device__ inline float to_float(E5m2 value) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(value.bits, __NV_E5M2)));
}
__device__ inline float to_float(int8_t value) { return static_cast<float>(value); }
__device__ inline float to_float(uint8_t value) { return static_cast<float>(value); }

// Two 16-bit values straight from the word they were loaded in: half the instructions of unpacking
// them one by one.
template <class T>
__device__ inline float2 pair_to_floats(uint32_t word);
template <>
__device__ inline float2 pair_to_floats<Bf16>(uint32_t word) {
  return {__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u)};
}
template <>
__device__ inline float2 pair_to_floats<F16>(uint32_t word) {
  return __half22float2(*reinterpret_cast<const __half2*>(&word));
}

// Infinity becomes NaN, and nothing else changes, by one fused multiply-add. FP8 conversions
// saturate, so without this an infinity would come out as an ordinary number.
__device__ inline float nan_if_infinite(float value) { return __fmaf_rn(value, 0.0f, value); }

// Two values at a time, because the narrowing instructions take two. Rounds to nearest even;
// FP8 and integers saturate, and NaN becomes 0 in an integer.
template <class T>
__device__ inline void from_floats(float low, float high, T (&out)[2]);

template <>
__device__ inline void from_floats(float low, float high, float (&out)[2]) {
  out[0] = low;
  out[1] = high;
}
template <>
__device__ inline void from_floats(float low, float high, F16 (&out)[2]) {
  const __half2 pair = __floats2half2_rn(low, high);
  out[0].bits = __half_as_ushort(__low2half(pair));
  out[1].bits = __half_as_ushort(__high2half(pair));
}
template <>
__device__ inline void from_floats(float low, float high, Bf16 (&out)[2]) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  out[0].bits = __bfloat16_as_ushort(__low2bfloat16(pair));
  out[1].bits = __bfloat16_as_ushort(__high2bfloat16(pair));
}
template <>
__device__ inline void from_floats(float low, float high, E4m3 (&out)[2]) {
  const uint16_t pair = __nv_cvt_float2_to_fp8x2({low, high}, __NV_SATFINITE, __NV_E4M3);
  out[0].bits = static_cast<uint8_t>(pair & 0xff);
  out[1].bits = static_cast<uint8_t>(pair >> 8);
}
template <>
__device__ inline void from_floats(float low, float high, E5m2 (&out)[2]) {
  const uint16_t pair = __nv_cvt_float2_to_fp8x2({low, high}, __NV_SATFINITE, __NV_E5M2);
  out[0].bits = static_cast<uint8_t>(pair & 0xff);
  out[1].bits = static_cast<uint8_t>(pair >> 8);
}

// PTX: cvt.rni.sat. NaN gives 0.
__device__ inline int round_to_int8(float value) {
  int result;
  asm("cvt.rni.sat.s8.f32 %0, %1;" : "=r"(result) : "f"(value));
  return result;
}
__device__ inline int round_to_uint8(float value) {
  int result;
  asm("cvt.rni.sat.u8.f32 %0, %1;" : "=r"(result) : "f"(value));
  return result;
}
template <>
__device__ inline void from_floats(float low, float high, int8_t (&out)[2]) {
  out[0] = static_cast<int8_t>(round_to_int8(low));
  out[1] = static_cast<int8_t>(round_to_int8(high));
}
template <>
__device__ inline void from_floats(float low, float high, uint8_t (&out)[2]) {
  out[0] = static_cast<uint8_t>(round_to_uint8(low));
  out[1] = static_cast<uint8_t>(round_to_uint8(high));
}

template <class T>
__device__ inline T from_float(float value) {
  T pair[2];
  from_floats(value, 0.0f, pair);
  return pair[0];
}

}  // namespace tessera::tile
