// The launchers that the portable table points at; a row without an instance does not link.
// SPDX-License-Identifier: MIT
#pragma once

#include "tessera/core/context.h"
#include "tessera/ops/gemm.h"

namespace tessera::kernels {

// By tensor cores; T is Bf16, F16, or float for tf32.
template <class T>
void launch_gemm_mma(const GemmArgs& args, const Context& ctx);
template <class T>
void launch_gemm_mma_unaligned(const GemmArgs& args, const Context& ctx);

// By CUDA cores; kIsAligned: rows of a and b begin at multiples of 16 bytes.
template <bool kIsAligned>
void launch_gemm_f32(const GemmArgs& args, const Context& ctx);

}  // namespace tessera::kernels
