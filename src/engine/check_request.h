// Which requests are refused, each with a message that names the field.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "tessera/engine/field_names.h"
#include "tessera/engine/request.h"

namespace tessera::engine {

inline constexpr int64_t kMaxStops = 16;
inline constexpr int64_t kMaxStopBytes = 256;
inline constexpr int64_t kMaxStopTokens = 256;
inline constexpr int32_t kMaxOutputs = 64;
inline constexpr int32_t kMaxBeams = 32;
inline constexpr int32_t kMaxLogprobs = 20;

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

// Refuses whatever of a request does not depend on its prompt or on free pages, so that it can be
// checked before a model is loaded.
void check_settings(const Request& request, const Capacity& capacity);
// Refuses a request that is malformed or could never run.
void check_request(const Request& request, const Capacity& capacity);
// Tokens it may generate: what is asked for, as far as the context has room.
int64_t clipped_new_tokens(const Request& request, int64_t max_context);

}  // namespace tessera::engine
