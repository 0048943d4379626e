// Rows of f32, f16 and bf16 as floats and back.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "tessera/core/convert.h"
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

template <class T>
void load_row(const T* from, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = to_float(from[i]);
}

template <class T>
void store_row(const float* from, int64_t count, T* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = from_float<T>(from[i]);
}

}  // namespace tessera::cpu
