// Decode attention of f16 queries over a cache in e4m3, for Hopper.
// SPDX-License-Identifier: MIT
#include "kernels/attention/decode_sm90/launch.cuh"

namespace tessera::kernels {

template void launch_decode_sm90<F16, KvE4m3, 64>(const DecodeAttentionArgs&, const Context&);
template void launch_decode_sm90<F16, KvE4m3, 96>(const DecodeAttentionArgs&, const Context&);
template void launch_decode_sm90<F16, KvE4m3, 128>(const DecodeAttentionArgs&, const Context&);
template void launch_decode_sm90<F16, KvE4m3, 256>(const DecodeAttentionArgs&, const Context&);

}  // namespace tessera::kernels
