// The matrix product's tables, one per library; empty in a build without CUDA
// (kernels/rows_none.cpp).
// SPDX-License-Identifier: MIT
#pragma once

#include <span>

#include "kernels/row.h"
#include "tessera/ops/gemm.h"

namespace tessera::kernels {

std::span<const Row<GemmArgs>> gemm_rows_sm90();
std::span<const Row<GemmArgs>> gemm_rows();
// cuBLASLt, found at run time; not batch-invariant.
std::span<const Row<GemmArgs>> gemm_rows_cublaslt();

}  // namespace tessera::kernels

namespace tessera {

inline RowKey key_of(const GemmArgs& args) { return {args.a.dtype, args.out.dtype}; }

}  // namespace tessera
