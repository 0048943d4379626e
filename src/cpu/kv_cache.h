// The KV cache operations on the CPU, attention excepted. src/ops has checked the arguments; slots
// and page numbers inside the tensors are checked here, before anything is written.
// SPDX-License-Identifier: MIT
#pragma once

#include "tessera/ops/kv_cache.h"

namespace tessera::cpu {

void kv_append(const KvAppendArgs& args);
void kv_copy_pages(const KvCopyPagesArgs& args);
void kv_gather(const KvGatherArgs& args);

}  // namespace tessera::cpu
