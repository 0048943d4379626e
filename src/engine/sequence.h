// The state of requests and of their sequences between steps.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cache/page_cache.h"
#include "engine/beam_search.h"
#include "engine/sampling/sampler.h"
#include "tessera/engine/request.h"
#include "text/text_stream.h"

namespace tessera::engine {

struct ActiveRequest;

// A beam search and where its beams' keys and values are.
struct BeamGroup {
  BeamSearch search;
  std::vector<cache::PageList> lists = {};  // [live beams]; none until the prompt is computed
};

// What is scheduled: one sequence, or one beam search.
struct Sequence {
  ActiveRequest* request = nullptr;
  int32_t index = 0;                // within its request
  int32_t num_rows = 1;             // sequences or beams that begin with it
  uint64_t arrival = 0;             // of its request, then index: no two are equal
  std::vector<int32_t> tokens;      // known: the prompt, and what was generated
  int64_t num_computed = 0;         // of these, whose keys and values are in the pages
  cache::PageList pages;            // hold num_computed tokens; empty while waiting
  std::vector<int32_t> beam_pages;  // a beam search's pages in one list, as the plan reads them
  bool is_running = false;
  std::optional<BeamGroup> beams;        // of a beam search; `tokens` is then the prompt alone
  TokenCounts counts;                    // filled only where a penalty asks for it
  std::optional<text::TextStream> text;  // none where the model has no tokenizer
};

// A request from submit to its last output.
struct ActiveRequest {
  RequestId id = 0;
  Request request;
  uint64_t seed = 0;
  int64_t max_new_tokens = 0;        // what was asked for, as far as the context has room
  std::vector<int32_t> stop_tokens;  // its own and the model's, sorted
  std::vector<std::unique_ptr<Sequence>> sequences;  // unfinished; siblings join after the prompt
  std::vector<bool> is_finished;                     // [num_outputs]
  std::vector<float> prompt_logprobs;                // so far; kept over preemption
  int64_t num_cached_tokens = 0;
  bool was_started = false;
  bool has_reported_prompt = false;
  bool is_cancelled = false;

  bool is_beam_search() const { return request.beam_width > 0; }
  int64_t num_prompt() const { return static_cast<int64_t>(request.prompt.size()); }
  int64_t num_generated(const Sequence& sequence) const {
    return static_cast<int64_t>(sequence.tokens.size()) - num_prompt();
  }
  bool counts_tokens() const {
    const SamplingParams& sampling = request.sampling;
    return sampling.repetition_penalty != 1.0f || sampling.presence_penalty != 0.0f ||
           sampling.frequency_penalty != 0.0f;
  }
};

// One row of a step's batch: a sequence's chunk, or a beam's one token.
struct BatchRow {
  bool completes() const { return beam >= 0 || start + num_tokens == std::ssize(sequence->tokens); }
  // A generated token, alone; all others are chunks of the prompt.
  bool is_decode() const { return beam >= 0 || start >= sequence->request->num_prompt(); }

  Sequence* sequence = nullptr;
  int32_t beam = -1;  // -1: not a beam
  int64_t start = 0;  // position of its first token in this step
  int64_t num_tokens = 0;
  int64_t first_logit = 0;  // its first row of the step's logits
  int64_t num_logits = 0;   // those of its last tokens
};

// What the sampler found for one row; nothing has changed yet.
struct RowResult {
  std::vector<OutputToken> tokens;     // one for each sequence that goes on from this row
  std::vector<float> prompt_logprobs;  // of the prompt tokens after this row's
  std::vector<BeamToken> candidates;   // a beam's best next tokens
  std::vector<TokenLogprob> top;       // alternatives to report beside them
  std::string error;                   // not empty: the request fails

  void clear() {
    tokens.clear();
    prompt_logprobs.clear();
    candidates.clear();
    top.clear();
    error.clear();
  }
};

}  // namespace tessera::engine
