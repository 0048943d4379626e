// Row reductions and argmax, for the sm90 library.
// SPDX-License-Identifier: MIT
#include "kernels/elementwise/reduce.cuh"
#include "kernels/elementwise/reduce_argmax.cuh"

namespace tessera::kernels {

template void launch_reduce<Sm90, Bf16>(const ReduceArgs&, const Context&);
template void launch_reduce<Sm90, F16>(const ReduceArgs&, const Context&);
template void launch_reduce<Sm90, float>(const ReduceArgs&, const Context&);
template void launch_argmax<Sm90, Bf16>(const ArgmaxArgs&, const Context&);
template void launch_argmax<Sm90, F16>(const ArgmaxArgs&, const Context&);
template void launch_argmax<Sm90, float>(const ArgmaxArgs&, const Context&);

}  // namespace tessera::kernels
