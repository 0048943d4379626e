// Decode attention of f16 queries over a cache of their own type, for Hopper.
// SPDX-License-Identifier: MIT
#include "kernels/attention/decode_sm90/launch.cuh"

namespace tessera::kernels {

template void launch_decode_sm90<F16, KvPlain<F16>, 64>(const DecodeAttentionArgs&, const Context&);
template void launch_decode_sm90<F16, KvPlain<F16>, 96>(const DecodeAttentionArgs&, const Context&);
template void launch_decode_sm90<F16, KvPlain<F16>, 128>(const DecodeAttentionArgs&,
                                                         const Context&);
template void launch_decode_sm90<F16, KvPlain<F16>, 256>(const DecodeAttentionArgs&,
                                                         const Context&);

}  // namespace tessera::kernels
