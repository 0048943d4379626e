// Requests and their sequences between steps, and the rows of the step that is running.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cache/page_cache.h"
#include "engine/beam_search.h"
#include "engine/count_slots.h"
#include "engine/drafter.h"
#include "engine/pooled_states.h"
#include "grammar/token_masks.h"
#include "tessera/engine/request.h"
#include "text/text_stream.h"

namespace tessera::engine {

struct ActiveRequest;

// A beam search, and the pages that hold the keys and values of its beams.
struct BeamGroup {
  BeamSearch search;
  std::vector<cache::PageList> lists = {};  // [live beams]; empty until the prompt is computed
};

// The unit that is scheduled: one sequence, or one beam search with all its beams.
struct Sequence {
  ActiveRequest* request = nullptr;
  int32_t index = 0;                     // within its request
  int32_t num_rows = 1;                  // sequences or beams that will continue from it
  uint64_t arrival = 0;                  // order of arrival, unique: the request's, then by index
  std::vector<int32_t> tokens;           // known so far: the prompt and what was generated
  int32_t num_drawing = 0;               // more that steps in progress are drawing
  int32_t drawn_index = 0;               // the last of them is this draw of the step launched last
  int64_t num_computed = 0;              // tokens with keys and values in the pages, once the step
                                         // in progress has ended
  cache::PageList pages;                 // hold num_computed tokens; empty while it waits
  std::vector<int32_t> beam_pages;       // the pages of all beams in one list, for the plan
  bool is_running = false;               // false: waiting, or ended
  bool has_ended = false;                // a step in progress may still have a row of it
  int32_t num_starts = 0;                // how often it was queued: once, and at each preemption
  std::optional<BeamGroup> beams;        // beam search only; `tokens` is then the prompt alone
  std::optional<Drafter> drafter;        // once it may have drafts
  std::vector<int32_t> draft;            // guesses at the tokens that follow, for the next step
  grammar::Progress progress;            // in the request's constraint, if it has one
  std::string constraint_error;          // why no mask could be made for the step in progress
  CountSlot seen;                        // its list of tokens seen, if the request has penalties
  std::optional<text::TextStream> text;  // empty if the model has no tokenizer

  // Tokens that are known once the steps in progress have ended.
  int64_t num_known() const { return std::ssize(tokens) + num_drawing; }
  bool has_beams() const { return beams && !beams->lists.empty(); }
  cache::PageList& list_of(int32_t beam) {
    return beam < 0 ? pages : beams->lists[static_cast<size_t>(beam)];
  }
};

// A request from submit to its last output.
struct ActiveRequest {
  RequestId id = 0;
  Request request;
  uint64_t seed = 0;
  int64_t max_new_tokens = 0;        // as requested, but no more than the context has room for
  std::vector<int32_t> stop_tokens;  // its own and the model's, sorted
  std::vector<int32_t> end_tokens;   // those of them that are no part of the text: a constraint
                                     // allows them where the text is complete
  std::vector<std::unique_ptr<Sequence>> sequences;  // unfinished; siblings join after the prompt
  std::vector<bool> is_finished;                     // [num_outputs]
  std::vector<float> prompt_logprobs;                // so far; kept when it is preempted
  PooledStates pooled;                               // likewise
  int64_t num_cached_tokens = 0;
  std::shared_ptr<grammar::TokenMasks> masks;  // of the constraint; null: none
  bool was_started = false;
  Clock::time_point start_time = {};  // when its first tokens were planned
  bool has_reported_prompt = false;
  bool is_cancelled = false;

  bool is_beam_search() const { return request.beam_width > 0; }
  int64_t num_prompt() const { return static_cast<int64_t>(request.prompt.size()); }
  int64_t num_generated(const Sequence& sequence) const {
    return std::ssize(sequence.tokens) - num_prompt();
  }
  bool has_penalties() const {
    const SamplingParams& sampling = request.sampling;
    return sampling.repetition_penalty != 1.0f || sampling.presence_penalty != 0.0f ||
           sampling.frequency_penalty != 0.0f;
  }
};

// The first position whose logits are needed: the last known token's, or the next one whose prompt
// logprob is still missing.
inline int64_t first_logit_of(const Sequence& sequence) {
  const ActiveRequest& active = *sequence.request;
  const auto num_logprobs = std::ssize(active.prompt_logprobs);
  const bool wants_more =
      active.request.wants_prompt_logprobs && num_logprobs < active.num_prompt() - 1;
  return wants_more ? num_logprobs : sequence.num_known() - 1;
}

// The first position whose hidden state is needed; the end of the prompt: none.
inline int64_t first_state_of(const ActiveRequest& active) {
  switch (active.request.pooling) {
    case Pooling::none: break;
    case Pooling::last: return active.num_prompt() - 1;
    case Pooling::mean: return active.pooled.num_states();
  }
  return active.num_prompt();
}

// One row of a step's batch: a chunk of a sequence, the one token of a beam, or a guessed token.
// Guesses follow the row of the token they continue, and each is computed as if those before it
// were right.
struct BatchRow {
  // Whether the row is one generated token; all other rows are chunks of a prompt.
  bool is_decode() const { return beam >= 0 || start >= sequence->request->num_prompt(); }

  Sequence* sequence = nullptr;
  int32_t beam = -1;  // -1: not a beam
  int32_t guess = 0;  // n: the n-th token of the sequence's draft
  int64_t start = 0;  // position of its first token in this step
  int64_t num_tokens = 0;
  bool completes = false;    // it ends with the last known token, so that a new one can be drawn
  int32_t start_number = 0;  // num_starts of the sequence: if it differs later, it was preempted
  int64_t first_draw = 0;    // among the step's draws
  int64_t num_draws = 0;     // one for each sequence that continues from here
  int64_t first_score = 0;   // among the step's scored tokens
  int64_t num_scores = 0;    // the tokens of the prompt that follow so many of its last tokens
  int64_t num_states = 0;    // hidden states wanted, of so many of its last tokens
};

// What was sampled for one row.
struct RowResult {
  std::vector<OutputToken> tokens;     // one for each sequence that continues from this row
  std::vector<float> prompt_logprobs;  // of the prompt tokens that follow the row's
  std::span<const float> states;       // [row.num_states, hidden]
  std::vector<BeamToken> candidates;   // a beam's best next tokens
  std::vector<TokenLogprob> top;       // alternatives to report with them
  std::string error;                   // not empty: the request fails

  void clear() {
    tokens.clear();
    prompt_logprobs.clear();
    states = {};
    candidates.clear();
    top.clear();
    error.clear();
  }
};

}  // namespace tessera::engine
