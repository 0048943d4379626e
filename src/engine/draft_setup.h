// A draft model beside its target: whether they belong together, and what the draft may take.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <filesystem>

#include "engine/memory_check.h"
#include "model/config.h"
#include "tessera/engine/engine.h"
#include "tessera/text/tokenizer.h"

namespace tessera::engine {

// Refuses a draft whose vocabulary has another size.
void check_draft_vocab(const model::ModelConfig& target, const model::ModelConfig& draft,
                       const EngineOptions& options);
// Refuses a draft whose tokenizer.json gives an id to another token. `tokenizer` is that of the
// folder `target`.
void check_draft_tokenizer(const Tokenizer& tokenizer, const std::filesystem::path& target,
                           const EngineOptions& options);

// The options of the draft's runner, from those of the target, which are filled in. Its KV cache
// holds as many tokens as the target's if `free_bytes` are free for both, and at least one context.
EngineOptions draft_options(const EngineOptions& options, const model::ModelConfig& target,
                            const model::ModelConfig& draft, int64_t free_bytes);

// Throws OutOfMemory if both do not fit into free memory, before any weight is read.
void check_memory_of_both(const model::ModelConfig& target, const model::ModelConfig& draft,
                          const EngineOptions& options);

}  // namespace tessera::engine
