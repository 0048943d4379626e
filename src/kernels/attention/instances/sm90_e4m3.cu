// Prefill attention of e4m3, for the sm90 library.
// SPDX-License-Identifier: MIT
#include "kernels/attention/sm90/launch_sm90.cuh"

namespace tessera::kernels {

template <int kD>
void launch_prefill_sm90_e4m3(const AttentionArgs& args, const Context& ctx) {
  if (changes_scores(args)) {
    return launch_prefill<E4m3, typename ChoosePrefillTile<kD, kD, 8, true>::type, true>(args, ctx);
  }
  if constexpr (kD < 256) {  // the row takes no larger ones
    if (args.sums_in_float) {
      using Tile = typename ChoosePrefillTile<kD, kD, 8, false, true>::type;
      return launch_prefill<E4m3, Tile, false>(args, ctx);
    }
  }
  launch_prefill<E4m3, typename ChoosePrefillTile<kD, kD, 8, false>::type, false>(args, ctx);
}

template void launch_prefill_sm90_e4m3<64>(const AttentionArgs&, const Context&);
template void launch_prefill_sm90_e4m3<128>(const AttentionArgs&, const Context&);
template void launch_prefill_sm90_e4m3<256>(const AttentionArgs&, const Context&);

}  // namespace tessera::kernels
