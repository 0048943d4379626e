// Softmax, for the portable library.
// SPDX-License-Identifier: MIT
#include "kernels/elementwise/softmax.cuh"

namespace tessera::kernels {

template void launch_softmax<Portable, Bf16>(const SoftmaxArgs&, const Context&);
template void launch_softmax<Portable, F16>(const SoftmaxArgs&, const Context&);
template void launch_softmax<Portable, float>(const SoftmaxArgs&, const Context&);

}  // namespace tessera::kernels
