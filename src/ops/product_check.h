// What the norm in front of a product, and the product, require of their arguments.
// SPDX-License-Identifier: MIT
#pragma once

#include "tessera/ops/gemm.h"
#include "tessera/ops/norm.h"

namespace tessera::ops {

void check_rms_norm(const RmsNormArgs& args);
void check_gemm(const GemmArgs& args);

}  // namespace tessera::ops
