// Copies of whole pages of a KV cache for the portable library.
// SPDX-License-Identifier: MIT
#include "kernels/kv/copy_pages.cuh"

namespace tessera::kernels {

template void launch_kv_copy_pages<Portable>(const KvCopyPagesArgs&, const Context&);

}  // namespace tessera::kernels
