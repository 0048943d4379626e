// Engine options checked and completed: what can be said of them without the model's weights.
// SPDX-License-Identifier: MIT
#pragma once

#include "engine/check_request.h"
#include "model/batch.h"
#include "model/config.h"
#include "tessera/engine/engine.h"

namespace tessera::engine {

// Refuses values that make no engine; does not look at the model.
void check_options(const EngineOptions& options);
// With every default filled in. Refuses as check_options does, and a context that is longer than
// the model was made for.
EngineOptions fill_options(EngineOptions options, const model::ModelConfig& config);

// Of options that are filled in: the largest step, and what requests are held against. Pages are
// not counted yet.
model::BatchLimits limits_of(const EngineOptions& options);
Capacity capacity_of(const EngineOptions& options, int64_t vocab, bool has_tokenizer);

}  // namespace tessera::engine
