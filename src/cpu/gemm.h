// The matrix product on the CPU: the fallback, and the oracle the GPU rows are tested against.
// Arguments have been checked by src/ops; every tensor is in CPU memory.
// SPDX-License-Identifier: MIT
#pragma once

#include "cpu/simd_dispatch.h"
#include "tessera/ops/gemm.h"

namespace tessera::cpu {

// With the best instruction set this CPU has, or with one of simd_levels(). For one instruction set
// a row of out has the same bits whatever m and the number of threads are.
void gemm(const GemmArgs& args);
void gemm(const GemmArgs& args, SimdLevel level);

}  // namespace tessera::cpu
