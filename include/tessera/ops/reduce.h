// Reductions over the last axis: sums, extremes and the position of the largest element.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "tessera/core/context.h"
#include "tessera/core/tensor.h"

namespace tessera {

enum class Reduction : uint8_t { sum, mean, max, min, absmax };

// out[row] = the reduction of x[row], accumulated in float in an order that depends on cols alone.
// NaN gives NaN. Over no columns sum and absmax are 0; the others are refused.
struct ReduceArgs {
  TensorView x;    // [rows, cols]; f32, f16 or bf16
  TensorView out;  // f32 [rows], contiguous
  Reduction kind = Reduction::sum;
};

// out[row] = the index of the largest element; of equals the first, and NaN counts as largest.
struct ArgmaxArgs {
  TensorView x;    // [rows, cols]; f32, f16 or bf16; cols at least 1
  TensorView out;  // i32 or i64 [rows], contiguous
};

void reduce(const ReduceArgs& args, const Context& ctx = {});
void argmax(const ArgmaxArgs& args, const Context& ctx = {});
bool supports(const ReduceArgs& args, const Context& ctx = {});
bool supports(const ArgmaxArgs& args, const Context& ctx = {});

}  // namespace tessera
