// Conversions between element types on the host, exact in rounding.
// SPDX-License-Identifier: MIT
#pragma once

#include "tessera/core/dtype.h"
#include "tessera/core/tensor.h"

namespace tessera {

// Widening is exact; NaN stays NaN.
float to_float(F16 value);
float to_float(Bf16 value);
float to_float(E4m3 value);
float to_float(E5m2 value);

// Narrowing rounds to nearest even. f16 and bf16 overflow to infinity; e4m3 and e5m2 saturate to
// their largest finite value, infinities included, as CUDA's satfinite conversions do. NaN stays NaN.
// Integers saturate and NaN becomes 0.
template <class T>
T from_float(float value);

// The same for a whole tensor, any dtype to any dtype; both on the CPU and of one shape. Integers
// convert among themselves exactly (saturating), never through float.
void convert(const TensorView& from, const TensorView& to);

}  // namespace tessera
