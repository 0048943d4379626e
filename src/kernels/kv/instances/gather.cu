// A KV cache read back for the portable library.
// SPDX-License-Identifier: MIT
#include "kernels/kv/gather.cuh"

namespace tessera::kernels {

template void launch_kv_gather<Portable, Bf16>(const KvGatherArgs&, const Context&);
template void launch_kv_gather<Portable, F16>(const KvGatherArgs&, const Context&);
template void launch_kv_gather<Portable, float>(const KvGatherArgs&, const Context&);

}  // namespace tessera::kernels
