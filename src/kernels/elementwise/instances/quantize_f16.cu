// Quantisation of f16 to 4 and 8 bits, for the portable library.
// SPDX-License-Identifier: MIT
#include "kernels/elementwise/quantize.cuh"

namespace tessera::kernels {

template void launch_quantize<Portable, F16, int8_t>(const QuantizeArgs&, const Context&);
template void launch_quantize<Portable, F16, uint8_t>(const QuantizeArgs&, const Context&);
template void launch_quantize<Portable, F16, I4x2>(const QuantizeArgs&, const Context&);
template void launch_quantize<Portable, F16, E4m3>(const QuantizeArgs&, const Context&);
template void launch_quantize<Portable, F16, E5m2>(const QuantizeArgs&, const Context&);

}  // namespace tessera::kernels
