// RMSNorm and LayerNorm without quantisation, for the portable library.
// SPDX-License-Identifier: MIT
#include "kernels/elementwise/norm.cuh"

namespace tessera::kernels {

template void launch_rms_norm<Portable, Bf16, Bf16>(const RmsNormArgs&, const Context&);
template void launch_rms_norm<Portable, F16, F16>(const RmsNormArgs&, const Context&);
template void launch_rms_norm<Portable, float, float>(const RmsNormArgs&, const Context&);
template void launch_layer_norm<Portable, Bf16, Bf16>(const LayerNormArgs&, const Context&);
template void launch_layer_norm<Portable, F16, F16>(const LayerNormArgs&, const Context&);
template void launch_layer_norm<Portable, float, float>(const LayerNormArgs&, const Context&);

}  // namespace tessera::kernels
