// The matrix product's rows by cuBLASLt. They are built into every library, run on any GPU that the
// portable one does, and decline where cuBLASLt is not installed.
// SPDX-License-Identifier: MIT
#include "kernels/gemm/cublaslt/launch.h"
#include "kernels/gemm/rows.h"

namespace tessera::kernels {
namespace {

constexpr Row<GemmArgs> row(DType in, DType out, std::string_view label) {
  return {"gemm",
          Library::portable,
          {in, out},
          &launch_cublaslt,
          label,
          &accepts_cublaslt,
          /*is_batch_invariant=*/false};
}

constexpr Row<GemmArgs> kRows[] = {
    row(DType::bf16, DType::bf16, "cublaslt_bf16"),
    row(DType::f16, DType::f16, "cublaslt_f16"),
    row(DType::f32, DType::f32, "cublaslt_f32"),
    row(DType::bf16, DType::f32, "cublaslt_bf16_f32"),
    row(DType::f16, DType::f32, "cublaslt_f16_f32"),
};

}  // namespace

std::span<const Row<GemmArgs>> gemm_rows_cublaslt() { return kRows; }

}  // namespace tessera::kernels
