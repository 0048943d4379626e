// The matrix product of bf16, for the portable library.
// SPDX-License-Identifier: MIT
#include "kernels/gemm/portable/mma.cuh"

namespace tessera::kernels {

template void launch_gemm_mma<Bf16>(const GemmArgs&, const Context&);
template void launch_gemm_mma_unaligned<Bf16>(const GemmArgs&, const Context&);

}  // namespace tessera::kernels
