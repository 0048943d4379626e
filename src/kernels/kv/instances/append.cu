// New tokens into a KV cache for the portable library.
// SPDX-License-Identifier: MIT
#include "kernels/kv/append.cuh"

namespace tessera::kernels {

template void launch_kv_append<Portable, Bf16>(const KvAppendArgs&, const Context&);
template void launch_kv_append<Portable, F16>(const KvAppendArgs&, const Context&);
template void launch_kv_append<Portable, float>(const KvAppendArgs&, const Context&);

}  // namespace tessera::kernels
