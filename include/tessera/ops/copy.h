// Strided copies: transposes, reshapes and slices made contiguous, or the reverse.
// SPDX-License-Identifier: MIT
#pragma once

#include "tessera/core/context.h"
#include "tessera/core/tensor.h"

namespace tessera {

//   out[index] = x[index]      for every index; any strides on either side, bit for bit
struct CopyArgs {
  TensorView x;    // any shape up to rank 6; any dtype but i4
  TensorView out;  // shape and dtype of x; must not overlap x
};

void copy(const CopyArgs& args, const Context& ctx = {});
bool supports(const CopyArgs& args, const Context& ctx = {});

}  // namespace tessera
