// What the cuBLASLt rows are made of.
// SPDX-License-Identifier: MIT
#pragma once

#include "tessera/core/context.h"
#include "tessera/ops/gemm.h"

namespace tessera::kernels {

// Whether the library is installed and offers an algorithm for this product. Asked once per kind of
// product, then remembered: 0.1 us.
bool accepts_cublaslt(const GemmArgs& args);

// The first call of a kind of product outside a capture times up to 8 algorithms and waits for
// them, which takes milliseconds; later ones only enqueue. Under capture the algorithm that the
// library itself puts first is taken, unless one was timed before.
void launch_cublaslt(const GemmArgs& args, const Context& ctx);

}  // namespace tessera::kernels
