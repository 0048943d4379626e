// The empty table of a build without the portable library.
// SPDX-License-Identifier: MIT
#include "kernels/kv/rows.h"

namespace tessera::kernels {

const KvCacheRows& kv_cache_rows() {
  static constexpr KvCacheRows kNone{};
  return kNone;
}

}  // namespace tessera::kernels
