// The folding of parts of attention for the portable library.
// SPDX-License-Identifier: MIT
#include "kernels/attention/merge/merge.cuh"

namespace tessera::kernels {

template void launch_attention_merge<Portable, Bf16>(const MergeAttentionArgs&, const Context&);
template void launch_attention_merge<Portable, F16>(const MergeAttentionArgs&, const Context&);
template void launch_attention_merge<Portable, float>(const MergeAttentionArgs&, const Context&);

}  // namespace tessera::kernels
