// Decode attention of f32 queries, for the portable library.
// SPDX-License-Identifier: MIT
#include "kernels/attention/decode_portable/decode.cuh"

namespace tessera::kernels {

template void launch_attention_decode<float>(const DecodeAttentionArgs&, const Context&);

}  // namespace tessera::kernels
