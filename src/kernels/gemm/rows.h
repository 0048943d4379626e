// The matrix product's tables, one per library; empty in a build without it
// (kernels/rows_none*.cpp).
// SPDX-License-Identifier: MIT
#pragma once

#include <span>

#include "kernels/row.h"
#include "tessera/ops/gemm.h"
#include "tessera/ops/norm_gemm.h"
#include "tessera/ops/sparse.h"

namespace tessera::kernels {

std::span<const Row<GemmArgs>> gemm_rows_sm90();
std::span<const Row<GemmArgs>> gemm_rows();
// cuBLASLt, found at run time; not batch-invariant.
std::span<const Row<GemmArgs>> gemm_rows_cublaslt();
// With the norm in front.
std::span<const Row<NormGemmArgs>> norm_gemm_rows_sm90();
// With a 2:4 sparse weight.
std::span<const Row<Gemm24Args>> gemm_2_4_rows();

}  // namespace tessera::kernels

namespace tessera {

inline RowKey key_of(const GemmArgs& args) {
  const RowKey key{args.a.dtype, args.out.dtype, args.b.values.dtype, args.b.packing};
  return args.b.table ? key.with_table() : key;
}
inline RowKey key_of(const NormGemmArgs& args) { return key_of(args.gemm); }
inline RowKey key_of(const Gemm24Args& args) { return {args.a.dtype, args.out.dtype}; }

}  // namespace tessera
