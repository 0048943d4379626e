// Prefill attention of f32 in tiles wider than a head, for the portable library.
// SPDX-License-Identifier: MIT
#include "kernels/attention/portable/simt.cuh"

namespace tessera::kernels {

template void launch_attention_f32_padded<64>(const AttentionArgs&, const Context&);
template void launch_attention_f32_padded<128>(const AttentionArgs&, const Context&);
template void launch_attention_f32_padded<256>(const AttentionArgs&, const Context&);

}  // namespace tessera::kernels
