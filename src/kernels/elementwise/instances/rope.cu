// Rotary position embedding for the portable library.
// SPDX-License-Identifier: MIT
#include "kernels/elementwise/rope.cuh"

namespace tessera::kernels {

template void launch_rope<Portable, Bf16>(const RopeArgs&, const Context&);
template void launch_rope<Portable, F16>(const RopeArgs&, const Context&);
template void launch_rope<Portable, float>(const RopeArgs&, const Context&);

}  // namespace tessera::kernels
