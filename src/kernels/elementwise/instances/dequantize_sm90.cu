// Dequantisation of 4 and 8 bits to f32, f16 and bf16, for the sm90 library.
// SPDX-License-Identifier: MIT
#include "kernels/elementwise/dequantize.cuh"

namespace tessera::kernels {

template void launch_dequantize<Sm90, int8_t, Bf16>(const DequantizeArgs&, const Context&);
template void launch_dequantize<Sm90, uint8_t, Bf16>(const DequantizeArgs&, const Context&);
template void launch_dequantize<Sm90, I4x2, Bf16>(const DequantizeArgs&, const Context&);
template void launch_dequantize<Sm90, E4m3, Bf16>(const DequantizeArgs&, const Context&);
template void launch_dequantize<Sm90, E5m2, Bf16>(const DequantizeArgs&, const Context&);
template void launch_dequantize<Sm90, int8_t, F16>(const DequantizeArgs&, const Context&);
template void launch_dequantize<Sm90, uint8_t, F16>(const DequantizeArgs&, const Context&);
template void launch_dequantize<Sm90, I4x2, F16>(const DequantizeArgs&, const Context&);
template void launch_dequantize<Sm90, E4m3, F16>(const DequantizeArgs&, const Context&);
template void launch_dequantize<Sm90, E5m2, F16>(const DequantizeArgs&, const Context&);
template void launch_dequantize<Sm90, int8_t, float>(const DequantizeArgs&, const Context&);
template void launch_dequantize<Sm90, uint8_t, float>(const DequantizeArgs&, const Context&);
template void launch_dequantize<Sm90, I4x2, float>(const DequantizeArgs&, const Context&);
template void launch_dequantize<Sm90, E4m3, float>(const DequantizeArgs&, const Context&);
template void launch_dequantize<Sm90, E5m2, float>(const DequantizeArgs&, const Context&);

}  // namespace tessera::kernels
