// Rounds scales to the type they will be stored in. This comes before codes are chosen, so that
// the codes are the nearest ones for the scales as stored.
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

// The scale rounded to the type, or the scale itself if it would become 0.
inline float rounded_scale(DType dtype, float scale) {
  const float rounded = rounded_to(dtype, scale);
  return rounded == 0.0f ? scale : rounded;
}

// quantize in ScaleMode::dynamic, but codes are chosen with scales rounded to scale_dtype. Zero
// points are those of the scales before rounding. CPU only.
void quantize_rounded(const QuantizeArgs& args, DType scale_dtype, const Context& ctx = {});

}  // namespace tessera::ops
