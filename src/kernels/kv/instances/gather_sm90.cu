// A KV cache read back for the sm90 library.
// SPDX-License-Identifier: MIT
#include "kernels/kv/gather.cuh"

namespace tessera::kernels {

template void launch_kv_gather<Sm90, Bf16>(const KvGatherArgs&, const Context&);
template void launch_kv_gather<Sm90, F16>(const KvGatherArgs&, const Context&);
template void launch_kv_gather<Sm90, float>(const KvGatherArgs&, const Context&);

}  // namespace tessera::kernels
