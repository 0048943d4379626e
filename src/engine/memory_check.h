// Whether a model and its KV cache fit into free memory; asked before any weight is read.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "model/config.h"
#include "model/kv_layout.h"
#include "tessera/core/device.h"
#include "tessera/engine/engine.h"
#include "tessera/engine/field_names.h"

namespace tessera::engine {

// Memory that can still be allocated. On the host: what the machine has available, within the
// limits of the container and of the process (ulimit -v). On a GPU: what the driver reports.
int64_t free_memory(Device device);

// What the engine allocates on its device and, for a GPU, on the host as well.
struct MemoryNeeds {
  int64_t weights = 0;
  int64_t activations = 0;  // with the RoPE table, the batch and the kernels' scratch
  int64_t host = 0;         // 0 if the device is the host
};
// For one rank alone. Options are filled in, here and below.
MemoryNeeds memory_needs(const model::ModelConfig& config, const EngineOptions& options);

// What kernels on a GPU allocate by themselves in the first steps (kernels/stream_scratch.h). The
// KV cache leaves room for it; 0 on the CPU.
int64_t kernel_scratch_bytes(const model::ModelConfig& config, const EngineOptions& options);

// Contexts that KV memory is taken for by default. A sequence with drafts takes up several rows.
int64_t num_contexts(const EngineOptions& options);
// And how much of free memory at most; more on a GPU, which other programs rarely use.
int64_t default_kv_percent(Device device);

struct KvNeeds {
  int64_t page_bytes = 0;  // of one page with its scales
  int64_t page_size = 0;   // tokens
  int64_t max_context = 0;
  int64_t max_batch = 0;
  int64_t kv_bytes = 0;    // requested; 0: room for max_batch contexts, but at most
                           // default_percent of free_bytes
  int64_t free_bytes = 0;  // on the device, with the model's own memory already subtracted
  int64_t default_percent = 25;
  FieldNames names = {};
};
// How many whole pages fit. Refuses a cache that cannot hold one context, with what is needed, what
// is free and which option to change; with OutOfMemory if memory is what is missing.
int64_t num_kv_pages(const KvNeeds& needs);
// The KV cache for these options if `free_bytes` are free for it.
model::KvOptions choose_kv(const model::ModelConfig& config, const EngineOptions& options,
                           int64_t free_bytes);

// Throws OutOfMemory if the engine does not fit into `free_bytes` of the device or, for a GPU, into
// free_host_bytes. The message says what is needed for what, what is free, and what to change.
void check_memory(const model::ModelConfig& config, const EngineOptions& options,
                  int64_t free_bytes, int64_t free_host_bytes);
// The same with the memory that is free now.
void check_memory(const model::ModelConfig& config, const EngineOptions& options);

}  // namespace tessera::engine
