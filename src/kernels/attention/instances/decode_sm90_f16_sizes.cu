// Decode attention of f16 queries over a cache of their own type, with heads of less common sizes,
// for Hopper.
// SPDX-License-Identifier: MIT
#include "kernels/attention/decode_sm90/launch.cuh"

namespace tessera::kernels {

template void launch_decode_sm90<F16, KvPlain<F16>, 80>(const DecodeAttentionArgs&, const Context&);
template void launch_decode_sm90<F16, KvPlain<F16>, 112>(const DecodeAttentionArgs&,
                                                         const Context&);
template void launch_decode_sm90<F16, KvPlain<F16>, 160>(const DecodeAttentionArgs&,
                                                         const Context&);
template void launch_decode_sm90<F16, KvPlain<F16>, 192>(const DecodeAttentionArgs&,
                                                         const Context&);

}  // namespace tessera::kernels
