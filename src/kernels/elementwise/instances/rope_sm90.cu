// Rotary position embedding for the sm90 library.
// SPDX-License-Identifier: MIT
#include "kernels/elementwise/rope.cuh"

namespace tessera::kernels {

template void launch_rope<Sm90, Bf16>(const RopeArgs&, const Context&);
template void launch_rope<Sm90, F16>(const RopeArgs&, const Context&);
template void launch_rope<Sm90, float>(const RopeArgs&, const Context&);

}  // namespace tessera::kernels
