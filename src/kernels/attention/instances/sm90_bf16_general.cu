// Prefill attention of bf16 with softcap, ALiBi or dropout, for the sm90 library.
// SPDX-License-Identifier: MIT
#include "kernels/attention/sm90/launch_sm90.cuh"

namespace tessera::kernels {

template <class T, int kDk, int kDv>
void launch_prefill_sm90_general(const AttentionArgs& args, const Context& ctx) {
  launch_prefill<T, typename ChoosePrefillTile<kDk, kDv, 16, true>::type, true>(args, ctx);
}

template void launch_prefill_sm90_general<Bf16, 128, 128>(const AttentionArgs&, const Context&);
template void launch_prefill_sm90_general<Bf16, 64, 64>(const AttentionArgs&, const Context&);
template void launch_prefill_sm90_general<Bf16, 96, 96>(const AttentionArgs&, const Context&);
template void launch_prefill_sm90_general<Bf16, 256, 256>(const AttentionArgs&, const Context&);
template void launch_prefill_sm90_general<Bf16, 192, 128>(const AttentionArgs&, const Context&);
template void launch_prefill_sm90_general<Bf16, 32, 64>(const AttentionArgs&, const Context&);

}  // namespace tessera::kernels
