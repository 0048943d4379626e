// New tokens into a KV cache for the sm90 library.
// SPDX-License-Identifier: MIT
#include "kernels/kv/append.cuh"

namespace tessera::kernels {

template void launch_kv_append<Sm90, Bf16>(const KvAppendArgs&, const Context&);
template void launch_kv_append<Sm90, F16>(const KvAppendArgs&, const Context&);
template void launch_kv_append<Sm90, float>(const KvAppendArgs&, const Context&);

}  // namespace tessera::kernels
