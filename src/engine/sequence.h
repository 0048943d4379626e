// Requests and their sequences between steps, and the rows of the step that is running.
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
#include "engine/sampling/sample.h"
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
  int64_t num_computed = 0;              // how many of them have their keys and values in the pages
  cache::PageList pages;                 // hold num_computed tokens; empty while it waits
  std::vector<int32_t> beam_pages;       // the pages of all beams in one list, for the plan
  bool is_running = false;               // false: waiting, or retired
  std::optional<BeamGroup> beams;        // beam search only; `tokens` is then the prompt alone
  TokenCounts counts;                    // filled only if the request has penalties
  std::optional<text::TextStream> text;  // empty if the model has no tokenizer

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
  std::vector<std::unique_ptr<Sequence>> sequences;  // unfinished; siblings join after the prompt
  std::vector<bool> is_finished;                     // [num_outputs]
  std::vector<float> prompt_logprobs;                // so far; kept when it is preempted
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

// One row of a step's batch: a chunk of a sequence, or the one token of a beam.
struct BatchRow {
  // Whether the row ends with the last known token, so that a new one can be sampled from it.
  bool completes() const { return beam >= 0 || start + num_tokens == std::ssize(sequence->tokens); }
  // Whether the row is one generated token; all other rows are chunks of a prompt.
  bool is_decode() const { return beam >= 0 || start >= sequence->request->num_prompt(); }

  Sequence* sequence = nullptr;
  int32_t beam = -1;  // -1: not a beam
  int64_t start = 0;  // position of its first token in this step
  int64_t num_tokens = 0;
  int64_t first_logit = 0;  // its first row in the step's logits
  int64_t num_logits = 0;   // logits are computed for this many of its last tokens
};

// What was sampled for one row. The sequence itself has not changed yet.
struct RowResult {
  std::vector<OutputToken> tokens;     // one for each sequence that continues from this row
  std::vector<float> prompt_logprobs;  // of the prompt tokens that follow the row's
  std::vector<BeamToken> candidates;   // a beam's best next tokens
  std::vector<TokenLogprob> top;       // alternatives to report with them
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
