// Row reductions and argmax, for the portable library.
// SPDX-License-Identifier: MIT
#include "kernels/elementwise/reduce.cuh"
#include "kernels/elementwise/reduce_argmax.cuh"

namespace tessera::kernels {

template void launch_reduce<Portable, Bf16>(const ReduceArgs&, const Context&);
template void launch_reduce<Portable, F16>(const ReduceArgs&, const Context&);
template void launch_reduce<Portable, float>(const ReduceArgs&, const Context&);
template void launch_argmax<Portable, Bf16>(const ArgmaxArgs&, const Context&);
template void launch_argmax<Portable, F16>(const ArgmaxArgs&, const Context&);
template void launch_argmax<Portable, float>(const ArgmaxArgs&, const Context&);

}  // namespace tessera::kernels
