// Element types of tensors, and storage types for those that C++ does not have.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string_view>

namespace tessera {

enum class DType : uint8_t { f32, f16, bf16, e4m3, e5m2, i8, u8, i4, i32, i64 };

inline constexpr DType kAllDTypes[] = {DType::f32,  DType::f16, DType::bf16, DType::e4m3,
                                       DType::e5m2, DType::i8,  DType::u8,   DType::i4,
                                       DType::i32,  DType::i64};

// Storage of floating-point types narrower than 32 bits: only the bits. Arithmetic is in float, by
// to_float and from_float (core/convert.h) on the host and by CUDA's own types on the device.
struct F16 {
  static constexpr DType dtype = DType::f16;
  uint16_t bits;
};
struct Bf16 {
  static constexpr DType dtype = DType::bf16;
  uint16_t bits;
};
struct E4m3 {  // 1.4.3, bias 7, no infinity, NaN is S.1111.111, largest finite 448
  static constexpr DType dtype = DType::e4m3;
  uint8_t bits;
};
struct E5m2 {  // 1.5.2, bias 15, infinities and NaN as in IEEE, largest finite 57344
  static constexpr DType dtype = DType::e5m2;
  uint8_t bits;
};
// Two 4-bit integers in a byte, the element with the even index in the low nibble.
struct I4x2 {
  static constexpr DType dtype = DType::i4;
  uint8_t bits;
};

constexpr int bit_width(DType dtype) {
  switch (dtype) {
    case DType::i4: return 4;
    case DType::e4m3:
    case DType::e5m2:
    case DType::i8:
    case DType::u8: return 8;
    case DType::f16:
    case DType::bf16: return 16;
    case DType::f32:
    case DType::i32: return 32;
    case DType::i64: return 64;
  }
  return 0;
}

// The largest magnitude of a symmetric quantised code; 0 for types without such codes. Integers
// leave their lowest code unused, so that the range is symmetric.
constexpr float quant_max(DType dtype) {
  switch (dtype) {
    case DType::i4: return 7.0f;
    case DType::i8: return 127.0f;
    case DType::e4m3: return 448.0f;
    case DType::e5m2: return 57344.0f;
    default: return 0.0f;
  }
}

// The largest code of a type quantised with a zero point, whose codes start at 0; 0 for types
// without one.
constexpr int zero_point_max(DType dtype) {
  switch (dtype) {
    case DType::i4: return 15;
    case DType::u8: return 255;
    default: return 0;
  }
}

// Bytes of `count` consecutive elements; an odd count of i4 rounds up.
constexpr int64_t storage_bytes(DType dtype, int64_t count) {
  return (count * bit_width(dtype) + 7) / 8;
}

constexpr bool is_float16_or_32(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16;
}

constexpr std::string_view name(DType dtype) {
  constexpr std::string_view kNames[] = {"f32", "f16", "bf16", "e4m3", "e5m2",
                                         "i8",  "u8",  "i4",   "i32",  "i64"};
  return kNames[static_cast<int>(dtype)];
}

// The DType a C++ storage type stands for: dtype_of<Bf16> == DType::bf16.
template <class T>
inline constexpr DType dtype_of = T::dtype;
template <>
inline constexpr DType dtype_of<float> = DType::f32;
template <>
inline constexpr DType dtype_of<int8_t> = DType::i8;
template <>
inline constexpr DType dtype_of<uint8_t> = DType::u8;
template <>
inline constexpr DType dtype_of<int32_t> = DType::i32;
template <>
inline constexpr DType dtype_of<int64_t> = DType::i64;

}  // namespace tessera
