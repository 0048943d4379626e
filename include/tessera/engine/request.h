// What is asked of the engine, and what comes back.
// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/engine/sampling.h"

namespace tessera {

using RequestId = uint64_t;
using Clock = std::chrono::steady_clock;

struct Request {
  std::vector<int32_t> prompt;  // token ids; at least one
  SamplingParams sampling = {};
  int64_t max_new_tokens = 256;           // cut to what the context has room for; 0 only with
                                          // wants_prompt_logprobs
  int64_t min_new_tokens = 0;             // no stop token, stop string or end of text before it
  std::vector<std::string> stop = {};     // up to 16 of at most 256 bytes; not part of the text
  std::vector<int32_t> stop_tokens = {};  // beside the model's own end-of-text tokens; up to 256.
                                          // The one met is among the tokens, not in the text
  bool ignores_eos = false;
  int32_t num_outputs = 1;  // sequences sampled from the one prompt, up to 64
  // > 0: beam search, up to 32 wide, over the model's own distribution: of `sampling` nothing
  // applies. The num_outputs best beams come at the end, best first.
  int32_t beam_width = 0;
  float length_penalty = 1.0f;  // a beam's score is logprob / length^length_penalty
  int32_t num_logprobs = -1;    // >= 0: the token's logprob and that many alternatives, up to 20
  bool wants_prompt_logprobs = false;  // the logprob of every prompt token but the first
  int32_t priority = 0;                // larger goes first; equals in order of arrival
  std::optional<Clock::time_point> deadline = {};
  std::string cache_salt = {};  // prefixes are shared only among requests of one salt
};

enum class FinishReason : uint8_t { none, stop, length, cancelled, deadline, error };
std::string_view name(FinishReason reason);  // "stop"

struct TokenLogprob {
  int32_t token = 0;
  float logprob = 0.0f;
};

struct OutputToken {
  int32_t token = 0;
  float logprob = 0.0f;                // natural, of the model's own distribution; 0 if not asked
  std::vector<TokenLogprob> top = {};  // the most probable, best first
};

// One sequence's news of one step. `text` is whole UTF-8 characters and never part of a stop
// string; text that might begin one is held back until it is decided.
struct SequenceOutput {
  RequestId request = 0;
  int32_t index = 0;  // 0 to num_outputs - 1
  std::vector<OutputToken> tokens = {};
  std::string text = {};
  FinishReason finish = FinishReason::none;
  std::string error = {};  // for FinishReason::error: one line
  // With the first output of sequence 0:
  int64_t num_prompt_tokens = 0;
  int64_t num_cached_tokens = 0;            // of the prompt, found in the prefix cache
  std::vector<float> prompt_logprobs = {};  // [num_prompt_tokens - 1], where asked for
  float score = 0.0f;                       // beam search: the finished beam's score
};

}  // namespace tessera
