// RMSNorm and LayerNorm without quantisation, for the sm90 library.
// SPDX-License-Identifier: MIT
#include "kernels/elementwise/norm.cuh"

namespace tessera::kernels {

template void launch_rms_norm<Sm90, Bf16, Bf16>(const RmsNormArgs&, const Context&);
template void launch_rms_norm<Sm90, F16, F16>(const RmsNormArgs&, const Context&);
template void launch_rms_norm<Sm90, float, float>(const RmsNormArgs&, const Context&);
template void launch_layer_norm<Sm90, Bf16, Bf16>(const LayerNormArgs&, const Context&);
template void launch_layer_norm<Sm90, F16, F16>(const LayerNormArgs&, const Context&);
template void launch_layer_norm<Sm90, float, float>(const LayerNormArgs&, const Context&);

}  // namespace tessera::kernels
