// What follows the product and its bias on the CPU, row by row.
// SPDX-License-Identifier: MIT
#pragma once

#include "tessera/ops/gemm.h"

namespace tessera::cpu {

// Whether out is more than the sum of products and bias, rounded.
inline bool has_epilogue(const GemmArgs& args) {
  return args.activation.has_value() || args.residual.has_value() || args.out_scale.has_value();
}

// Turns `products`, [m, n] floats with the bias in them, into out; they are used up. Tensors have
// two axes. Every element is computed by itself, so a row has the same bits in any batch.
void finish_rows(const GemmArgs& args, float* products);

}  // namespace tessera::cpu
