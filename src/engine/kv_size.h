// How many pages the KV cache gets.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "tessera/core/device.h"
#include "tessera/engine/field_names.h"

namespace tessera::engine {

struct KvNeeds {
  int64_t page_bytes = 0;  // of a page with its scales
  int64_t page_size = 0;   // tokens
  int64_t max_context = 0;
  int64_t max_batch = 0;
  int64_t kv_bytes = 0;          // asked for; 0: room for max_batch contexts, default_percent of
                                 // free_bytes at most
  int64_t free_bytes = 0;        // of the device, the model's own memory taken already
  int64_t default_percent = 25;  // of a GPU more is taken: nobody else wants it
  FieldNames names = {};
};

// Whole pages within the bytes. Refuses, with what is needed, what is free and what to set, a cache
// that cannot hold one context: with OutOfMemory where memory is what is missing.
int64_t num_kv_pages(const KvNeeds& needs);

// Memory that can still be taken: of the machine what is available, within the limits of its
// container and of the process (ulimit -v); of a GPU what its driver says.
int64_t free_memory(Device device);

}  // namespace tessera::engine
