// What the engine is asked for, and what it returns.
// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/engine/sampling.h"
#include "tessera/grammar/constraint.h"

namespace tessera {

using RequestId = uint64_t;
using Clock = std::chrono::steady_clock;

// How the hidden states of a prompt become one vector.
enum class Pooling : uint8_t {
  none,
  last,  // the state of the last token
  mean,  // the mean over all tokens
};

struct Request {
  std::vector<int32_t> prompt;  // token ids; at least one
  SamplingParams sampling = {};
  int64_t max_new_tokens = 256;           // fewer if the context is full before; 0 only with
                                          // wants_prompt_logprobs or pooling
  int64_t min_new_tokens = 0;             // no stop token, stop string or end of text before this
  std::vector<std::string> stop = {};     // up to 16 of at most 256 bytes; not part of the text
  std::vector<int32_t> stop_tokens = {};  // in addition to the model's end-of-text tokens; up to
                                          // 256. One that ends the output is among its tokens, but
                                          // not in its text
  bool ignores_eos = false;
  bool keeps_special = false;  // the text has the names of control tokens that are generated
  int32_t num_outputs = 1;     // sequences sampled from this prompt, up to 64
  // > 0: beam search, up to 32 wide, over the model's own distribution; `sampling` is ignored. The
  // num_outputs best beams are returned at the end, best first.
  int32_t beam_width = 0;
  float length_penalty = 1.0f;  // a beam's score is logprob / length^length_penalty
  int32_t num_logprobs = -1;    // >= 0: the token's logprob and this many alternatives, up to 20
  bool wants_prompt_logprobs = false;  // the logprob of every prompt token except the first
  // Asks for an embedding of the prompt in place of text, with max_new_tokens 0: the hidden states
  // behind the model's last norm, pooled.
  Pooling pooling = Pooling::none;
  int32_t priority = 0;  // larger goes first; ties in order of arrival
  std::optional<Clock::time_point> deadline = {};
  // What the output must look like: a description, which submit() compiles, or what
  // Constraint::compile made of one on any thread. Not both, and not with beam_width > 0. The
  // output ends, with FinishReason::stop, where nothing more can follow; FinishReason::length cuts
  // it short as always. Biases and penalties choose among the tokens that are allowed.
  std::optional<ConstraintSpec> constraint_spec = {};
  std::shared_ptr<const Constraint> constraint = {};
  std::string cache_salt = {};  // cached prefixes are shared only between requests with equal salts
};

enum class FinishReason : uint8_t { none, stop, length, cancelled, deadline, error };
std::string_view name(FinishReason reason);  // "stop"

struct TokenLogprob {
  int32_t token = 0;
  float logprob = 0.0f;
};

struct OutputToken {
  int32_t token = 0;
  float logprob =
      0.0f;  // natural logarithm, under the model's own distribution; 0 if not asked for
  std::vector<TokenLogprob> top = {};  // the most probable tokens, best first
};

// What one step added to one sequence. `text` consists of whole UTF-8 characters and never contains
// part of a stop string: text that may be the start of one is held back until that is decided.
struct SequenceOutput {
  RequestId request = 0;
  int32_t index = 0;  // 0 to num_outputs - 1
  std::vector<OutputToken> tokens = {};
  std::string text = {};
  FinishReason finish = FinishReason::none;
  std::string error = {};  // for FinishReason::error: one line
  // Set in the first output of sequence 0:
  Clock::time_point start_time = {};  // when its first tokens were planned; not set if never
  int64_t num_prompt_tokens = 0;
  int64_t num_cached_tokens = 0;            // prompt tokens reused from the prefix cache
  std::vector<float> prompt_logprobs = {};  // [num_prompt_tokens - 1], if asked for
  std::vector<float> embedding = {};        // [hidden], if asked for; not scaled to any length
  float score = 0.0f;                       // beam search only: the finished beam's score
};

}  // namespace tessera
