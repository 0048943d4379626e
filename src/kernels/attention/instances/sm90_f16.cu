// Prefill attention of f16, for the sm90 library.
// SPDX-License-Identifier: MIT
#include "kernels/attention/sm90/launch_sm90.cuh"

namespace tessera::kernels {

template void launch_prefill_sm90<F16, 128, 128>(const AttentionArgs&, const Context&);
template void launch_prefill_sm90<F16, 64, 64>(const AttentionArgs&, const Context&);
template void launch_prefill_sm90<F16, 96, 96>(const AttentionArgs&, const Context&);
template void launch_prefill_sm90<F16, 256, 256>(const AttentionArgs&, const Context&);
template void launch_prefill_sm90<F16, 192, 128>(const AttentionArgs&, const Context&);
template void launch_prefill_sm90<F16, 32, 64>(const AttentionArgs&, const Context&);

}  // namespace tessera::kernels
