// Matrix products on the CPU, dense and 2:4 sparse: the fallback, and the reference the GPU rows
// are tested against. Arguments have been checked by src/ops; every tensor is in CPU memory.
// SPDX-License-Identifier: MIT
#pragma once

#include "cpu/simd_dispatch.h"
#include "tessera/ops/gemm.h"
#include "tessera/ops/sparse.h"

namespace tessera::cpu {

// With the best instruction set of this CPU, or with one of simd_levels(). For a given instruction
// set a row of out has the same bits for every m and every number of threads.
void gemm(const GemmArgs& args);
void gemm(const GemmArgs& args, SimdLevel level);

// Elements of k that share a scale of a, where a row of a has several.
inline constexpr int64_t kTokenGroup = 128;
// a . b^T + bias of two quantised operands as floats, [m, n]. Sums of integers are exact.
void multiply_codes(const GemmArgs& args, float* products);

// From Packing::rows to Packing::fragments, or back.
void pack_weight(const Weight& from, const Weight& to);

void prune_2_4(const Prune24Args& args);
void expand_2_4(const Expand24Args& args);
// Expands the weight, then computes the dense product.
void gemm_2_4(const Gemm24Args& args);

}  // namespace tessera::cpu
