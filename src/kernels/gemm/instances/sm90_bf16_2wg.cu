// The Hopper kernel for bf16, two warpgroups a block.
// SPDX-License-Identifier: MIT
#include "kernels/gemm/sm90/launch_sm90.cuh"

namespace tessera::kernels {

template void launch_two_warpgroups<Bf16>(const GemmArgs&, const Sm90Plan&, const Context&);

}  // namespace tessera::kernels
