// Decode attention of bf16 queries over a cache in int4, keys by column, for Hopper.
// SPDX-License-Identifier: MIT
#include "kernels/attention/decode_sm90/launch.cuh"

namespace tessera::kernels {

template void launch_decode_sm90<Bf16, KvInt4Columns, 64>(const DecodeAttentionArgs&,
                                                          const Context&);
template void launch_decode_sm90<Bf16, KvInt4Columns, 128>(const DecodeAttentionArgs&,
                                                           const Context&);

}  // namespace tessera::kernels
