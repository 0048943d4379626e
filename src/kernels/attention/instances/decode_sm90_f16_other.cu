// Decode attention of f16 queries over caches in e5m2 and uint8, for Hopper.
// SPDX-License-Identifier: MIT
#include "kernels/attention/decode_sm90/launch.cuh"

namespace tessera::kernels {

template void launch_decode_sm90<F16, KvE5m2, 64>(const DecodeAttentionArgs&, const Context&);
template void launch_decode_sm90<F16, KvE5m2, 128>(const DecodeAttentionArgs&, const Context&);
template void launch_decode_sm90<F16, KvUint8, 64>(const DecodeAttentionArgs&, const Context&);
template void launch_decode_sm90<F16, KvUint8, 128>(const DecodeAttentionArgs&, const Context&);

}  // namespace tessera::kernels
