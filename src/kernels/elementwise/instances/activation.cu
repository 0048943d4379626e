// Activations for the portable library.
// SPDX-License-Identifier: MIT
#include "kernels/elementwise/activation.cuh"

namespace tessera::kernels {

template void launch_activation<Portable, Bf16>(const ActivationArgs&, const Context&);
template void launch_activation<Portable, F16>(const ActivationArgs&, const Context&);
template void launch_activation<Portable, float>(const ActivationArgs&, const Context&);

}  // namespace tessera::kernels
