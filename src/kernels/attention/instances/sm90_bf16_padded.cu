// Prefill attention of bf16 in tiles wider than a head, for the sm90 library.
// SPDX-License-Identifier: MIT
#include "kernels/attention/sm90/launch_sm90.cuh"

namespace tessera::kernels {

template void launch_prefill_sm90_padded<Bf16, 64>(const AttentionArgs&, const Context&);
template void launch_prefill_sm90_padded<Bf16, 96>(const AttentionArgs&, const Context&);
template void launch_prefill_sm90_padded<Bf16, 128>(const AttentionArgs&, const Context&);
template void launch_prefill_sm90_padded<Bf16, 192>(const AttentionArgs&, const Context&);

}  // namespace tessera::kernels
