// The matrix product of f32 by tensor cores, for the portable library.
// SPDX-License-Identifier: MIT
#include "kernels/gemm/portable/mma.cuh"

namespace tessera::kernels {

template void launch_gemm_mma<float>(const GemmArgs&, const Context&);

}  // namespace tessera::kernels
