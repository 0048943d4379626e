// Decode attention of bf16 queries in a balanced assignment, for Hopper.
// SPDX-License-Identifier: MIT
#include "kernels/attention/decode_sm90/streaming.cuh"

namespace tessera::kernels {

template void launch_decode_streaming<Bf16, KvPlain<Bf16>, 64>(const DecodeAttentionArgs&,
                                                               const Context&);
template void launch_decode_streaming<Bf16, KvPlain<Bf16>, 128>(const DecodeAttentionArgs&,
                                                                const Context&);

}  // namespace tessera::kernels
