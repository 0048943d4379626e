// Decode attention of f16 queries in a balanced assignment, for Hopper.
// SPDX-License-Identifier: MIT
#include "kernels/attention/decode_sm90/streaming.cuh"

namespace tessera::kernels {

template void launch_decode_streaming<F16, KvPlain<F16>, 64>(const DecodeAttentionArgs&,
                                                             const Context&);
template void launch_decode_streaming<F16, KvPlain<F16>, 128>(const DecodeAttentionArgs&,
                                                              const Context&);

}  // namespace tessera::kernels
