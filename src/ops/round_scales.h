// Scales rounded to the type they are stored in before codes are chosen, so that codes and stored
// scales stand for exactly the values that were meant.
// SPDX-License-Identifier: MIT
#pragma once

#include "tessera/core/context.h"
#include "tessera/core/convert.h"
#include "tessera/core/dtype.h"
#include "tessera/ops/quantize.h"

namespace tessera::ops {

// `value` rounded to f32, f16 or bf16.
inline float rounded_to(DType dtype, float value) {
  if (dtype == DType::bf16) return to_float(from_float<Bf16>(value));
  if (dtype == DType::f16) return to_float(from_float<F16>(value));
  return value;
}

// A scale rounded to the type it is stored in; one that the type would round to 0 stays as it is.
inline float rounded_scale(DType dtype, float scale) {
  const float rounded = rounded_to(dtype, scale);
  return rounded == 0.0f ? scale : rounded;
}

// quantize with ScaleMode::dynamic and scales rounded to scale_dtype. Zero points come from the
// scales before they are rounded. On the CPU.
void quantize_rounded(const QuantizeArgs& args, DType scale_dtype, const Context& ctx = {});

}  // namespace tessera::ops
