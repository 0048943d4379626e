// Scaled values for the sm90 library.
// SPDX-License-Identifier: MIT
#include "kernels/elementwise/scale.cuh"

namespace tessera::kernels {

template void launch_scale<Sm90, Bf16>(const ScaleArgs&, const Context&);
template void launch_scale<Sm90, F16>(const ScaleArgs&, const Context&);
template void launch_scale<Sm90, float>(const ScaleArgs&, const Context&);

}  // namespace tessera::kernels
