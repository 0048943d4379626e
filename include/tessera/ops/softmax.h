// Softmax over the last axis, with a scale and a mask.
// SPDX-License-Identifier: MIT
#pragma once

#include <optional>

#include "tessera/core/context.h"
#include "tessera/core/tensor.h"

namespace tessera {

//   out = softmax(scale * x + mask)     in float, rounded once; leading axes are rows
// A row with no visible element gives zeros. NaN in a visible element gives a row of NaN.
struct SoftmaxArgs {
  TensorView x;    // [rows, cols]; f32, f16 or bf16
  TensorView out;  // [rows, cols], dtype of x; may be x
  // [mask_rows, cols]: u8 (0 hides) or f32 (added); row r reads mask row r % mask_rows, so
  // [q, k] serves [batch, heads, q, k].
  std::optional<TensorView> mask = {};
  float scale = 1.0f;
};

void softmax(const SoftmaxArgs& args, const Context& ctx = {});
bool supports(const SoftmaxArgs& args, const Context& ctx = {});

}  // namespace tessera
