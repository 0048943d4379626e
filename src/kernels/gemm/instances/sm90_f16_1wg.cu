// The Hopper kernel for f16, one warpgroup a block.
// SPDX-License-Identifier: MIT
#include "kernels/gemm/sm90/launch_sm90.cuh"

namespace tessera::kernels {

template void launch_one_warpgroup<F16>(const GemmArgs&, const Sm90Plan&, const Context&);

}  // namespace tessera::kernels
