// RMSNorm and LayerNorm over the last axis, with the fusions serving needs: the residual added
// first, the result quantised last.
// SPDX-License-Identifier: MIT
#pragma once

#include <optional>

#include "tessera/core/context.h"
#include "tessera/core/tensor.h"

namespace tessera {

//   h = residual ? (residual += x) : x          rounded to the dtype of x, as it is stored
//   y = h / sqrt(mean(h^2) + eps) * weight      in float
//   out = y, rounded once; or y quantised:
//     static_scale  q = round(y / static_scale)                              one scale for all
//     token_scale   token_scale[row] = absmax(y) / qmax (1 for a row of zeros); q likewise
// qmax is 448 for e4m3 and 127 for i8; values beyond it saturate, and what is not finite becomes
// what quantize makes of it (tessera/ops/quantize.h). Leading axes are rows.
// Error: within 2 ulp of the output type of the exact result for the stored h, plus hidden * 2^-24.
struct RmsNormArgs {
  TensorView x;                                 // [rows, hidden]; f32, f16 or bf16
  TensorView weight;                            // [hidden], dtype of x, contiguous
  TensorView out;                               // [rows, hidden]; dtype of x, e4m3 or i8; may be x
  std::optional<TensorView> residual = {};      // [rows, hidden], dtype of x; read and written
  std::optional<TensorView> static_scale = {};  // f32 [1], read; for a quantised out
  std::optional<TensorView> token_scale = {};   // f32 [rows], written; for a quantised out
  float eps = 1e-5f;
};

//   y = (h - mean(h)) / sqrt(var(h) + eps) * weight + bias      with h and out as above
struct LayerNormArgs {
  TensorView x;                                 // [rows, hidden]; f32, f16 or bf16
  TensorView weight;                            // [hidden], dtype of x, contiguous
  std::optional<TensorView> bias = {};          // [hidden], dtype of x, contiguous
  TensorView out;                               // [rows, hidden]; dtype of x, e4m3 or i8; may be x
  std::optional<TensorView> residual = {};      // [rows, hidden], dtype of x; read and written
  std::optional<TensorView> static_scale = {};  // f32 [1], read; for a quantised out
  std::optional<TensorView> token_scale = {};   // f32 [rows], written; for a quantised out
  float eps = 1e-5f;
};

void rms_norm(const RmsNormArgs& args, const Context& ctx = {});
void layer_norm(const LayerNormArgs& args, const Context& ctx = {});

// Whether some row (or the CPU) takes these arguments: the lookup the call itself makes.
bool supports(const RmsNormArgs& args, const Context& ctx = {});
bool supports(const LayerNormArgs& args, const Context& ctx = {});

}  // namespace tessera
