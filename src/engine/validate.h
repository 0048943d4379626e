// Options and requests checked and completed before anything runs. Every refusal names the field.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "model/batch.h"
#include "model/config.h"
#include "model/sampling.h"
#include "tessera/engine/engine.h"
#include "tessera/engine/field_names.h"
#include "tessera/engine/request.h"

namespace tessera::engine {

inline constexpr int64_t kMaxStops = 16;
inline constexpr int64_t kMaxStopBytes = 256;
inline constexpr int64_t kMaxStopTokens = 256;
inline constexpr int32_t kMaxOutputs = 64;
inline constexpr int32_t kMaxBeams = 32;
inline constexpr int32_t kMaxLogprobs = 20;
inline constexpr int64_t kMaxDraftTokens = 63;

// Refuses values out of range. Needs no model.
void check_options(const EngineOptions& options);
// The options with every default filled in. Refuses what check_options refuses, and a context
// longer than the model was made for.
EngineOptions fill_options(EngineOptions options, const model::ModelConfig& config);

// The largest step these options allow. They must be filled in.
model::BatchLimits limits_of(const EngineOptions& options);
model::SamplerLimits sampler_limits_of(const EngineOptions& options, int64_t vocab);

// What an engine can take.
struct Capacity {
  int64_t vocab = 0;
  int64_t max_context = 0;
  int64_t max_batch = 0;
  int64_t max_step_tokens = 0;
  int64_t max_step_logits = 0;
  int64_t page_size = 0;
  int64_t num_pages = 0;
  bool has_tokenizer = false;
  FieldNames names = {};
};
// From options that are filled in. num_pages is left 0: it is known once the model is loaded.
Capacity capacity_of(const EngineOptions& options, int64_t vocab, bool has_tokenizer);

// Refuses settings that are wrong whatever the prompt and the free pages, so that they can be
// checked before a model is loaded.
void check_settings(const Request& request, const Capacity& capacity);
// Refuses a request that is malformed or could never run.
void check_request(const Request& request, const Capacity& capacity);
// How many tokens the request may generate: max_new_tokens, or less if the context is too short.
int64_t clipped_new_tokens(const Request& request, int64_t max_context);

}  // namespace tessera::engine
