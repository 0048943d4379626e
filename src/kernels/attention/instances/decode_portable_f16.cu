// Decode attention of f16 queries, for the portable library.
// SPDX-License-Identifier: MIT
#include "kernels/attention/decode_portable/decode.cuh"

namespace tessera::kernels {

template void launch_attention_decode<F16>(const DecodeAttentionArgs&, const Context&);

}  // namespace tessera::kernels
