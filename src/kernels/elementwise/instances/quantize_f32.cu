// Quantisation of f32 to 4 and 8 bits, for the portable library.
// SPDX-License-Identifier: MIT
#include "kernels/elementwise/quantize.cuh"

namespace tessera::kernels {

template void launch_quantize<Portable, float, int8_t>(const QuantizeArgs&, const Context&);
template void launch_quantize<Portable, float, uint8_t>(const QuantizeArgs&, const Context&);
template void launch_quantize<Portable, float, I4x2>(const QuantizeArgs&, const Context&);
template void launch_quantize<Portable, float, E4m3>(const QuantizeArgs&, const Context&);
template void launch_quantize<Portable, float, E5m2>(const QuantizeArgs&, const Context&);

}  // namespace tessera::kernels
