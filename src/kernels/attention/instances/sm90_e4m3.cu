// Prefill attention of e4m3, for the sm90 library.
// SPDX-License-Identifier: MIT
#include "kernels/attention/sm90/launch_sm90.cuh"

namespace tessera::kernels {

template <int kD>
void launch_prefill_sm90_e4m3(const AttentionArgs& args, const Context& ctx) {
  if (changes_scores(args)) {
    launch_prefill<E4m3, typename ChoosePrefillTile<kD, kD, true, 8>::type, true>(args, ctx);
  } else if (args.sums_in_float) {
    launch_prefill<E4m3, PrefillTileInFloat<kD>, false>(args, ctx);
  } else {
    launch_prefill<E4m3, typename ChoosePrefillTile<kD, kD, false, 8>::type, false>(args, ctx);
  }
}

template void launch_prefill_sm90_e4m3<64>(const AttentionArgs&, const Context&);
template void launch_prefill_sm90_e4m3<128>(const AttentionArgs&, const Context&);
template void launch_prefill_sm90_e4m3<256>(const AttentionArgs&, const Context&);

}  // namespace tessera::kernels
