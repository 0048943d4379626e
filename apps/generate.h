// One request run to its end, with the text as it comes and the speeds.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/engine/engine.h"

namespace tessera::apps {

struct Speeds {
  int64_t num_prompt_tokens = 0;
  int64_t num_cached_tokens = 0;
  int64_t num_generated_tokens = 0;  // of all outputs
  double first_token_seconds = 0;    // from submission
  double decode_seconds = 0;         // from the first token to the last
  double prefill_rate() const;       // computed prompt tokens a second
  double decode_rate() const;        // tokens after the first step's, a second; 0: there were none
  int64_t num_first_tokens = 0;      // that came with the first step
};

struct Generation {
  std::vector<SequenceOutput> outputs;  // joined, by index
  Speeds speeds;
};

// "17 prompt tokens, 64 generated; prefill 5,012 tok/s, decode 612 tok/s, first token 3.4 ms".
std::string show(const Speeds& speeds);

// `on_text` gets the news of output 0 as it is decided. When `is_stopped` turns true the request is
// cancelled, and what there is is returned. Refuses a request the engine refuses or fails.
Generation generate(Engine& engine, Request request,
                    const std::function<void(std::string_view)>& on_text = {},
                    const std::function<bool()>& is_stopped = {});

}  // namespace tessera::apps
