// The table of the product with a 2:4 sparse weight; empty in a build without CUDA.
// SPDX-License-Identifier: MIT
#pragma once

#include <span>

#include "kernels/row.h"
#include "tessera/ops/sparse.h"

namespace tessera::kernels {

std::span<const Row<Gemm24Args>> gemm_2_4_rows();

}  // namespace tessera::kernels

namespace tessera {

inline RowKey key_of(const Gemm24Args& args) { return {args.a.dtype, args.out.dtype}; }

}  // namespace tessera
