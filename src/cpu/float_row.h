// Rows of f32, f16 and bf16 as floats and back. The same rounding as core/convert.h, written
// without branches and inline so that the loops vectorise; a test compares the two over every
// pattern. SPDX-License-Identifier: MIT
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "tessera/core/dtype.h"
#include "tessera/core/error.h"

namespace tessera::cpu {

// Calls f with a value of the storage type behind `dtype`; the checks admit no other.
template <class F>
void with_float_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32: return f(float{});
    case DType::f16: return f(F16{});
    case DType::bf16: return f(Bf16{});
    default: fail("the CPU was handed a type that is not f32, f16 or bf16");
  }
}

inline float widen(float value) { return value; }

inline float widen(Bf16 value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}

// The exponent is moved by multiplying with 2^112, which also normalises subnormals; infinities and
// NaN get theirs set to all ones instead.
inline float widen(F16 value) {
  const uint32_t magnitude = value.bits & 0x7fffu;
  const uint32_t sign = (value.bits & 0x8000u) << 16;
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  const uint32_t finite = std::bit_cast<uint32_t>(scaled);
  const uint32_t special = (magnitude << 13) | 0x7f800000u;
  return std::bit_cast<float>((magnitude >= 0x7c00u ? special : finite) | sign);
}

template <class T>
T narrow(float value);

template <>
inline float narrow<float>(float value) {
  return value;
}

template <>
inline Bf16 narrow<Bf16>(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t nan = (bits >> 16) | 0x40u;  // quiet, so that truncation cannot make an infinity
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return {static_cast<uint16_t>(is_nan ? nan : rounded)};
}

template <>
inline F16 narrow<F16>(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  // Normal: move the exponent and round at bit 13; a carry out of the mantissa is the right result,
  // up to and including infinity.
  const uint32_t normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  // Subnormal: the unit in the last place of 0.5f is 2^-24, that of f16's subnormals, so the adder
  // does the rounding.
  const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
  const uint32_t subnormal = std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(0.5f);
  const uint32_t special = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
  const uint32_t small_or_normal = magnitude < (113u << 23) ? subnormal : normal;
  const uint32_t result = magnitude >= (143u << 23) ? special : small_or_normal;
  return {static_cast<uint16_t>(result | sign)};
}

template <class T>
void load_row(const T* from, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = widen(from[i]);
}

template <class T>
void store_row(const float* from, int64_t count, T* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = narrow<T>(from[i]);
}

}  // namespace tessera::cpu
