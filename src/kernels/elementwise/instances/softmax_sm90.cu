// Softmax, for the sm90 library.
// SPDX-License-Identifier: MIT
#include "kernels/elementwise/softmax.cuh"

namespace tessera::kernels {

template void launch_softmax<Sm90, Bf16>(const SoftmaxArgs&, const Context&);
template void launch_softmax<Sm90, F16>(const SoftmaxArgs&, const Context&);
template void launch_softmax<Sm90, float>(const SoftmaxArgs&, const Context&);

}  // namespace tessera::kernels
