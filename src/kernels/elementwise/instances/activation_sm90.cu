// Activations for the sm90 library.
// SPDX-License-Identifier: MIT
#include "kernels/elementwise/activation.cuh"

namespace tessera::kernels {

template void launch_activation<Sm90, Bf16>(const ActivationArgs&, const Context&);
template void launch_activation<Sm90, F16>(const ActivationArgs&, const Context&);
template void launch_activation<Sm90, float>(const ActivationArgs&, const Context&);

}  // namespace tessera::kernels
