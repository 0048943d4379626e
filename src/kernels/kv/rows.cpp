// The KV cache table of the portable library.
// SPDX-License-Identifier: MIT
#include "kernels/kv/table.h"

namespace tessera::kernels {

const KvCacheRows& kv_cache_rows() { return KvCacheTable<Portable>::rows; }

}  // namespace tessera::kernels
