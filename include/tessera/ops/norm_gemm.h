// A norm and the product that reads it: how every block of a transformer begins.
// SPDX-License-Identifier: MIT
#pragma once

#include "tessera/core/context.h"
#include "tessera/ops/gemm.h"
#include "tessera/ops/norm.h"

namespace tessera {

//   rms_norm(norm);  gemm(gemm);
// with the same bits, in one kernel. A GPU has rows for a single row of x, where the launch of a
// norm takes longer than the norm; ask supports, and call the two where it says no. Where b is
// static, so is the weight of the norm: both may be read before the kernel in front has finished.
// Afterwards norm.out and norm.token_scale may be written or as they were.
struct NormGemmArgs {
  RmsNormArgs norm;  // without a residual
  GemmArgs gemm;     // a is norm.out, and a_scale its scale
};

void norm_gemm(const NormGemmArgs& args, const Context& ctx = {});
bool supports(const NormGemmArgs& args, const Context& ctx = {});

}  // namespace tessera
