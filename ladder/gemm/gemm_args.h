// The ladder's problem as arguments of the library's gemm.
// SPDX-License-Identifier: MIT
#pragma once

#include "ladder/gemm/steps.h"
#include "tessera/ops/gemm.h"

namespace tessera::ladder {

inline GemmArgs gemm_args(DType dtype, const Problem& p) {
  const auto view = [dtype](const void* data, int rows, int cols) {
    return TensorView::contiguous(const_cast<void*>(data), dtype, {rows, cols}, cuda_device());
  };
  GemmArgs args;
  args.a = view(p.a, p.m, p.k);
  args.b = view(p.b, p.n, p.k);
  args.out = view(p.d, p.m, p.n);
  return args;
}

}  // namespace tessera::ladder
