// Prefill attention of bf16, for the sm90 library.
// SPDX-License-Identifier: MIT
#include "kernels/attention/sm90/launch_sm90.cuh"

namespace tessera::kernels {

template void launch_prefill_sm90<Bf16, 128, 128>(const AttentionArgs&, const Context&);
template void launch_prefill_sm90<Bf16, 64, 64>(const AttentionArgs&, const Context&);
template void launch_prefill_sm90<Bf16, 96, 96>(const AttentionArgs&, const Context&);
template void launch_prefill_sm90<Bf16, 256, 256>(const AttentionArgs&, const Context&);
template void launch_prefill_sm90<Bf16, 192, 128>(const AttentionArgs&, const Context&);
template void launch_prefill_sm90<Bf16, 32, 64>(const AttentionArgs&, const Context&);

}  // namespace tessera::kernels
