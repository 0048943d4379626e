// Scaled values for the portable library.
// SPDX-License-Identifier: MIT
#include "kernels/elementwise/scale.cuh"

namespace tessera::kernels {

template void launch_scale<Portable, Bf16>(const ScaleArgs&, const Context&);
template void launch_scale<Portable, F16>(const ScaleArgs&, const Context&);
template void launch_scale<Portable, float>(const ScaleArgs&, const Context&);

}  // namespace tessera::kernels
