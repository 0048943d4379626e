// The folding of parts of attention for the sm90 library.
// SPDX-License-Identifier: MIT
#include "kernels/attention/merge/merge.cuh"

namespace tessera::kernels {

template void launch_attention_merge<Sm90, Bf16>(const MergeAttentionArgs&, const Context&);
template void launch_attention_merge<Sm90, F16>(const MergeAttentionArgs&, const Context&);
template void launch_attention_merge<Sm90, float>(const MergeAttentionArgs&, const Context&);

}  // namespace tessera::kernels
