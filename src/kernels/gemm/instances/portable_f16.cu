// The matrix product of f16, for the portable library.
// SPDX-License-Identifier: MIT
#include "kernels/gemm/portable/mma.cuh"

namespace tessera::kernels {

template void launch_gemm_mma<F16>(const GemmArgs&, const Context&);
template void launch_gemm_mma_unaligned<F16>(const GemmArgs&, const Context&);

}  // namespace tessera::kernels
