// The product with 2:4 sparse weights of f16.
// SPDX-License-Identifier: MIT
#include "kernels/gemm/sparse/sparse.cuh"

namespace tessera::kernels {

template void launch_gemm_2_4<F16>(const Gemm24Args&, const Context&);

}  // namespace tessera::kernels
