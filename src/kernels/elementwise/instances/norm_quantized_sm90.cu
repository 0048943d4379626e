// RMSNorm and LayerNorm with a quantised output, for the sm90 library.
// SPDX-License-Identifier: MIT
#include "kernels/elementwise/norm.cuh"

namespace tessera::kernels {

template void launch_rms_norm<Sm90, Bf16, E4m3>(const RmsNormArgs&, const Context&);
template void launch_rms_norm<Sm90, Bf16, int8_t>(const RmsNormArgs&, const Context&);
template void launch_rms_norm<Sm90, F16, E4m3>(const RmsNormArgs&, const Context&);
template void launch_rms_norm<Sm90, F16, int8_t>(const RmsNormArgs&, const Context&);
template void launch_rms_norm<Sm90, float, E4m3>(const RmsNormArgs&, const Context&);
template void launch_rms_norm<Sm90, float, int8_t>(const RmsNormArgs&, const Context&);
template void launch_layer_norm<Sm90, Bf16, E4m3>(const LayerNormArgs&, const Context&);
template void launch_layer_norm<Sm90, Bf16, int8_t>(const LayerNormArgs&, const Context&);
template void launch_layer_norm<Sm90, F16, E4m3>(const LayerNormArgs&, const Context&);
template void launch_layer_norm<Sm90, F16, int8_t>(const LayerNormArgs&, const Context&);
template void launch_layer_norm<Sm90, float, E4m3>(const LayerNormArgs&, const Context&);
template void launch_layer_norm<Sm90, float, int8_t>(const LayerNormArgs&, const Context&);

}  // namespace tessera::kernels
