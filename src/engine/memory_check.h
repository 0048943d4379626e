// Whether a model fits into free memory, asked before any of it is read.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "model/config.h"
#include "model/kv_layout.h"
#include "tessera/engine/engine.h"

namespace tessera::engine {

// What an engine will take of its device and, for a GPU, of the host beside it.
struct MemoryNeeds {
  int64_t weights = 0;
  int64_t activations = 0;  // and the table of angles, batches and scratch memory
  int64_t host = 0;         // 0 where the device is the host
};
// Options are filled in; world of one rank.
MemoryNeeds memory_needs(const model::ModelConfig& config, const EngineOptions& options);

// Scratch memory of a GPU's operations; 0 on the CPU.
int64_t workspace_bytes(const model::ModelConfig& config, const EngineOptions& options);

// Of the KV cache, so that what is free takes it; pages as kv_size.h says.
model::KvOptions choose_kv(const model::ModelConfig& config, const EngineOptions& options,
                           int64_t free_bytes);

// Refuses with OutOfMemory what does not fit into `free_bytes` of the device and, where that is a
// GPU, free_host_bytes: what is needed for what, what is free, and what to change.
void check_memory(const model::ModelConfig& config, const EngineOptions& options,
                  int64_t free_bytes, int64_t free_host_bytes);
// The same with what is free now.
void check_memory(const model::ModelConfig& config, const EngineOptions& options);

}  // namespace tessera::engine
