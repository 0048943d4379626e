// Matrix product with a weight: what every linear layer calls.
// SPDX-License-Identifier: MIT
#pragma once

#include <optional>

#include "tessera/core/context.h"
#include "tessera/core/tensor.h"

namespace tessera {

//   out[m, n] = a[m, k] . b[n, k]^T + bias[n]          accumulated in float, rounded once
// b holds the type of a, or int8 codes with a scale per output or per group of k:
//   b_scale [n]         b[j, i] stands for code * b_scale[j]
//   b_scale [n, k / g]  b[j, i] stands for code * b_scale[j, i / g]
// Row i of out depends on row i of a alone, bit for bit, whatever m is. m, n or k may be 0; over no
// k the product is 0.
// Error: within 1 ulp of the output type of the exact result, plus k * 2^-24 * sum |a| |b|.
struct GemmArgs {
  TensorView a;                            // [m, k]; f32, f16 or bf16; rows may be apart
  TensorView b;                            // [n, k]; dtype of a, or i8; rows may be apart
  std::optional<TensorView> b_scale = {};  // f32, contiguous; given exactly for i8
  std::optional<TensorView> bias = {};     // [n], dtype of a, contiguous
  TensorView out;                          // [m, n]; dtype of a, or f32; rows may be apart
};

void gemm(const GemmArgs& args, const Context& ctx = {});
bool supports(const GemmArgs& args, const Context& ctx = {});

}  // namespace tessera
