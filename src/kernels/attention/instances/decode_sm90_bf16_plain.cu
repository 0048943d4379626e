// Decode attention of bf16 queries over a cache of their own type, for Hopper.
// SPDX-License-Identifier: MIT
#include "kernels/attention/decode_sm90/launch.cuh"

namespace tessera::kernels {

template void launch_decode_sm90<Bf16, KvPlain<Bf16>, 64>(const DecodeAttentionArgs&,
                                                          const Context&);
template void launch_decode_sm90<Bf16, KvPlain<Bf16>, 96>(const DecodeAttentionArgs&,
                                                          const Context&);
template void launch_decode_sm90<Bf16, KvPlain<Bf16>, 128>(const DecodeAttentionArgs&,
                                                           const Context&);
template void launch_decode_sm90<Bf16, KvPlain<Bf16>, 256>(const DecodeAttentionArgs&,
                                                           const Context&);

}  // namespace tessera::kernels
