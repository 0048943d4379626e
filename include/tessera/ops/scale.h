// Scaled values, softly capped, added to a residual: the small steps some models take between the
// large ones.
// SPDX-License-Identifier: MIT
#pragma once

#include <optional>

#include "tessera/core/context.h"
#include "tessera/core/tensor.h"

namespace tessera {

//   y = scale * x
//   y = softcap * tanh(y / softcap)       where softcap is above 0
//   out = y + residual, or y              in float, rounded once
// Error: 1 ulp of the dtype plus 2^-20 of |y|.
struct ScaleArgs {
  TensorView x;    // any shape, contiguous; f32, f16 or bf16
  TensorView out;  // shape and dtype of x, contiguous; may be x or residual
  float scale = 1.0f;
  float softcap = 0.0f;                     // 0: none
  std::optional<TensorView> residual = {};  // shape and dtype of x, contiguous
};

void scale(const ScaleArgs& args, const Context& ctx = {});
bool supports(const ScaleArgs& args, const Context& ctx = {});

}  // namespace tessera
