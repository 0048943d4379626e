// The matrix product's table of the portable library.
// SPDX-License-Identifier: MIT
#include "kernels/gemm/rows.h"

#include "kernels/gemm/portable/launch.h"
#include "kernels/gemm/portable/params.h"

namespace tessera::kernels {
namespace {

using Launch = void (*)(const GemmArgs&, const Context&);
using Accepts = bool (*)(const GemmArgs&);

// Every kernel stores all types of out, so rows of one `in` share their launchers. Codes of f32
// products are not asked for.
constexpr Row<GemmArgs> row(DType in, DType out, Launch launch, Accepts accepts,
                            std::string_view label = {}) {
  return {"gemm", Library::portable, {in, out}, launch, label, accepts};
}

constexpr Row<GemmArgs> kRows[] = {
    row(DType::bf16, DType::bf16, &launch_gemm_mma<Bf16>, &accepts_aligned),
    row(DType::bf16, DType::f32, &launch_gemm_mma<Bf16>, &accepts_aligned),
    row(DType::bf16, DType::e4m3, &launch_gemm_mma<Bf16>, &accepts_aligned),
    row(DType::bf16, DType::i8, &launch_gemm_mma<Bf16>, &accepts_aligned),
    row(DType::f16, DType::f16, &launch_gemm_mma<F16>, &accepts_aligned),
    row(DType::f16, DType::f32, &launch_gemm_mma<F16>, &accepts_aligned),
    row(DType::f16, DType::e4m3, &launch_gemm_mma<F16>, &accepts_aligned),
    row(DType::f16, DType::i8, &launch_gemm_mma<F16>, &accepts_aligned),
    row(DType::f32, DType::f32, &launch_gemm_mma<float>, &accepts_tf32, "f32_tf32"),
    row(DType::f32, DType::f32, &launch_gemm_f32<true>, &accepts_aligned),

    row(DType::bf16, DType::bf16, &launch_gemm_mma_unaligned<Bf16>, &accepts_any, "bf16_unaligned"),
    row(DType::bf16, DType::f32, &launch_gemm_mma_unaligned<Bf16>, &accepts_any,
        "bf16_f32_unaligned"),
    row(DType::bf16, DType::e4m3, &launch_gemm_mma_unaligned<Bf16>, &accepts_any,
        "bf16_e4m3_unaligned"),
    row(DType::bf16, DType::i8, &launch_gemm_mma_unaligned<Bf16>, &accepts_any,
        "bf16_i8_unaligned"),
    row(DType::f16, DType::f16, &launch_gemm_mma_unaligned<F16>, &accepts_any, "f16_unaligned"),
    row(DType::f16, DType::f32, &launch_gemm_mma_unaligned<F16>, &accepts_any, "f16_f32_unaligned"),
    row(DType::f16, DType::e4m3, &launch_gemm_mma_unaligned<F16>, &accepts_any,
        "f16_e4m3_unaligned"),
    row(DType::f16, DType::i8, &launch_gemm_mma_unaligned<F16>, &accepts_any, "f16_i8_unaligned"),
    row(DType::f32, DType::f32, &launch_gemm_f32<false>, &accepts_any, "f32_unaligned"),
};

}  // namespace

std::span<const Row<GemmArgs>> gemm_rows() { return kRows; }

}  // namespace tessera::kernels
