// The matrix product of f32 by CUDA cores, for the portable library.
// SPDX-License-Identifier: MIT
#include "kernels/gemm/portable/simt.cuh"

namespace tessera::kernels {

void launch_gemm_f32(const GemmArgs& args, const Context& ctx) {
  launch_simt_chosen<true>(args, ctx);
}
void launch_gemm_f32_unaligned(const GemmArgs& args, const Context& ctx) {
  launch_simt_chosen<false>(args, ctx);
}

}  // namespace tessera::kernels
