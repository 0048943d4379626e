// Strided copies for the portable library.
// SPDX-License-Identifier: MIT
#include "kernels/elementwise/copy.cuh"

namespace tessera::kernels {

template void launch_copy<Portable, uint8_t>(const CopyArgs&, const Context&);
template void launch_copy<Portable, F16>(const CopyArgs&, const Context&);
template void launch_copy<Portable, int32_t>(const CopyArgs&, const Context&);
template void launch_copy<Portable, int64_t>(const CopyArgs&, const Context&);

}  // namespace tessera::kernels
