// Prefill attention of f32, for the portable library.
// SPDX-License-Identifier: MIT
#include "kernels/attention/portable/simt.cuh"

namespace tessera::kernels {

template void launch_attention_f32<32, 64>(const AttentionArgs&, const Context&);
template void launch_attention_f32<64, 64>(const AttentionArgs&, const Context&);
template void launch_attention_f32<96, 96>(const AttentionArgs&, const Context&);
template void launch_attention_f32<128, 128>(const AttentionArgs&, const Context&);
template void launch_attention_f32<192, 128>(const AttentionArgs&, const Context&);
template void launch_attention_f32<256, 256>(const AttentionArgs&, const Context&);

}  // namespace tessera::kernels
