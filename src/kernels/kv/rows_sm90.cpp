// The KV cache table of the sm90 library.
// SPDX-License-Identifier: MIT
#include "kernels/kv/table.h"

namespace tessera::kernels {

const KvCacheRows& kv_cache_rows_sm90() { return KvCacheTable<Sm90>::rows; }

}  // namespace tessera::kernels
