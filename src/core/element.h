// From a run-time dtype to a C++ storage type; reads and writes single elements.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <type_traits>

#include "tessera/core/dtype.h"

namespace tessera {

// Calls f with a std::type_identity of the storage type; i4 is I4x2.
template <class F>
decltype(auto) with_storage(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f16: return f(std::type_identity<F16>{});
    case DType::bf16: return f(std::type_identity<Bf16>{});
    case DType::e4m3: return f(std::type_identity<E4m3>{});
    case DType::e5m2: return f(std::type_identity<E5m2>{});
    case DType::i8: return f(std::type_identity<int8_t>{});
    case DType::u8: return f(std::type_identity<uint8_t>{});
    case DType::i4: return f(std::type_identity<I4x2>{});
    case DType::i32: return f(std::type_identity<int32_t>{});
    case DType::i64: return f(std::type_identity<int64_t>{});
    case DType::f32: break;
  }
  return f(std::type_identity<float>{});
}

// Element `i` of `data`; an i4 as an int8_t from -8 to 7. `i` may be negative, with a negative
// stride: the arithmetic shift then still finds the right byte.
template <class T>
auto read_element(const void* data, int64_t i) {
  if constexpr (std::is_same_v<T, I4x2>) {
    const uint8_t byte = static_cast<const uint8_t*>(data)[i >> 1];
    const int nibble = (i & 1) != 0 ? byte >> 4 : byte & 15;
    return static_cast<int8_t>((nibble ^ 8) - 8);
  } else {
    return static_cast<const T*>(data)[i];
  }
}

// Writing an i4 reads and writes its whole byte, so two threads must not write the same byte.
template <class T>
void write_element(void* data, int64_t i, T value) {
  static_cast<T*>(data)[i] = value;
}
inline void write_i4(void* data, int64_t i, int8_t value) {
  uint8_t& byte = static_cast<uint8_t*>(data)[i >> 1];
  const int shift = (i & 1) != 0 ? 4 : 0;
  byte = static_cast<uint8_t>((byte & (0xf0 >> shift)) | ((value & 15) << shift));
}

}  // namespace tessera
