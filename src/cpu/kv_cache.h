// Writing to a paged KV cache on the CPU. Arguments have been checked by src/ops; the slots and
// page numbers inside the tensors are checked here, before anything is written.
// SPDX-License-Identifier: MIT
#pragma once

#include "tessera/ops/kv_cache.h"

namespace tessera::cpu {

void kv_append(const KvAppendArgs& args);
void kv_copy_pages(const KvCopyPagesArgs& args);

}  // namespace tessera::cpu
