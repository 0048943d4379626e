// The rows of the product with a 2:4 sparse weight.
// SPDX-License-Identifier: MIT
#include "kernels/gemm/sparse/rows.h"

#include "kernels/gemm/sparse/launch.h"

namespace tessera::kernels {
namespace {

constexpr Row<Gemm24Args> kRows[] = {
    {"gemm_2_4",
     Library::portable,
     {DType::bf16, DType::bf16},
     &launch_gemm_2_4<Bf16>,
     {},
     &accepts_gemm_2_4},
    {"gemm_2_4",
     Library::portable,
     {DType::f16, DType::f16},
     &launch_gemm_2_4<F16>,
     {},
     &accepts_gemm_2_4},
};

}  // namespace

std::span<const Row<Gemm24Args>> gemm_2_4_rows() { return kRows; }

}  // namespace tessera::kernels
