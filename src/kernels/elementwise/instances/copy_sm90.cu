// Strided copies for the sm90 library.
// SPDX-License-Identifier: MIT
#include "kernels/elementwise/copy.cuh"

namespace tessera::kernels {

template void launch_copy<Sm90, uint8_t>(const CopyArgs&, const Context&);
template void launch_copy<Sm90, F16>(const CopyArgs&, const Context&);
template void launch_copy<Sm90, int32_t>(const CopyArgs&, const Context&);
template void launch_copy<Sm90, int64_t>(const CopyArgs&, const Context&);

}  // namespace tessera::kernels
