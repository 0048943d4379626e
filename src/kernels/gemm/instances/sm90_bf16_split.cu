// The Hopper kernel for bf16, k split among the blocks of a cluster.
// SPDX-License-Identifier: MIT
#include "kernels/gemm/sm90/launch_sm90.cuh"

namespace tessera::kernels {

template void launch_split<Bf16>(const GemmArgs&, const Sm90Plan&, const Context&);

}  // namespace tessera::kernels
