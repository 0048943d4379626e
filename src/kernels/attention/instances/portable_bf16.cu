// Prefill attention of bf16, for the portable library.
// SPDX-License-Identifier: MIT
#include "kernels/attention/portable/mma.cuh"

namespace tessera::kernels {

template void launch_attention_mma<Bf16, 32, 64>(const AttentionArgs&, const Context&);
template void launch_attention_mma<Bf16, 64, 64>(const AttentionArgs&, const Context&);
template void launch_attention_mma<Bf16, 96, 96>(const AttentionArgs&, const Context&);
template void launch_attention_mma<Bf16, 128, 128>(const AttentionArgs&, const Context&);
template void launch_attention_mma<Bf16, 192, 128>(const AttentionArgs&, const Context&);
template void launch_attention_mma<Bf16, 256, 256>(const AttentionArgs&, const Context&);

}  // namespace tessera::kernels
