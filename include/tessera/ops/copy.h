// Strided copies: transposes, reshapes and slices made contiguous, or the reverse; and conversions
// between floating-point types.
// SPDX-License-Identifier: MIT
#pragma once

#include "tessera/core/context.h"
#include "tessera/core/tensor.h"

namespace tessera {

//   out[index] = x[index]      for every index; any strides on either side, bit for bit
//
// Where the dtypes differ, both f32, f16 or bf16, every value is rounded once, to nearest even.
// Both tensors are then rows: the last axis is contiguous, and the others have one stride.
struct CopyArgs {
  TensorView x;    // any shape up to rank 6; any dtype but i4
  TensorView out;  // shape of x; must not overlap x
};

void copy(const CopyArgs& args, const Context& ctx = {});
bool supports(const CopyArgs& args, const Context& ctx = {});

}  // namespace tessera
