// Prefill attention of bf16 in tiles wider than a head, for the portable library.
// SPDX-License-Identifier: MIT
#include "kernels/attention/portable/mma.cuh"

namespace tessera::kernels {

template void launch_attention_mma_padded<Bf16, 64>(const AttentionArgs&, const Context&);
template void launch_attention_mma_padded<Bf16, 96>(const AttentionArgs&, const Context&);
template void launch_attention_mma_padded<Bf16, 128>(const AttentionArgs&, const Context&);
template void launch_attention_mma_padded<Bf16, 256>(const AttentionArgs&, const Context&);

}  // namespace tessera::kernels
