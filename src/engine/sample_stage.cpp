// The third call of a step: from logits to tokens. Reads the state and fills the results.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <limits>
#include <new>

#include "core/parallel.h"
#include "core/text.h"
#include "engine/engine_impl.h"
#include "tessera/core/error.h"

namespace tessera::engine {
namespace {

std::string broken_at(int64_t position) {
  return concat("the model's logits after token ", position,
                " are not finite; load it with check_weights to find out why");
}

}  // namespace

// The logprobs of the prompt tokens after this row's; each position stands alone.
void EngineImpl::score_prompt(const BatchRow& row, std::span<const float> logits,
                              RowResult& result) const {
  const ActiveRequest& active = *row.sequence->request;
  const int64_t first = row.start + row.num_tokens - row.num_logits;  // position
  const int64_t count = std::clamp<int64_t>(active.num_prompt() - 1 - first, 0, row.num_logits);
  if (row.beam >= 0 || count == 0) return;
  const int32_t* next = row.sequence->tokens.data() + first + 1;
  const auto width = static_cast<size_t>(vocab());
  result.prompt_logprobs.resize(static_cast<size_t>(count));
  float* scores = result.prompt_logprobs.data();
  parallel_for(count, vocab(), [&](int64_t i) {
    const auto one = logits.subspan(static_cast<size_t>(row.first_logit + i) * width, width);
    const double logit = one[static_cast<size_t>(next[i])];
    scores[i] = is_broken(one) ? std::numeric_limits<float>::quiet_NaN()
                               : static_cast<float>(logit - log_sum_exp(one));
  });
  const auto broken =
      std::ranges::find_if(result.prompt_logprobs, [](float score) { return std::isnan(score); });
  if (broken != result.prompt_logprobs.end()) {
    result.error = broken_at(first + (broken - result.prompt_logprobs.begin()));
  }
}

// The next tokens after a row that has reached the end of what is known.
void EngineImpl::sample_next(const BatchRow& row, std::span<const float> logits,
                             SamplerScratch& scratch, RowResult& result) const {
  const Sequence& sequence = *row.sequence;
  const ActiveRequest& active = *sequence.request;
  const Request& request = active.request;
  if (active.max_new_tokens == 0) return;
  if (is_broken(logits)) {
    result.error = broken_at(row.start + row.num_tokens - 1);
    return;
  }
  if (sequence.beams) {
    sequence.beams->search.best_tokens(logits, result.candidates);
    if (request.num_logprobs > 0) result.top = logprobs_of(logits, 0, request.num_logprobs).top;
    return;
  }
  const bool may_stop = active.num_generated(sequence) >= request.min_new_tokens;
  const std::span<const int32_t> banned =
      may_stop ? std::span<const int32_t>() : active.stop_tokens;
  for (int32_t i = 0; i < sequence.num_rows; ++i) {  // several: siblings begin here
    const int32_t token =
        engine::sample(logits, request.sampling, sequence.counts, banned, active.seed,
                       sequence.index + i, std::ssize(sequence.tokens), scratch);
    result.tokens.push_back(request.num_logprobs >= 0
                                ? logprobs_of(logits, token, request.num_logprobs)
                                : OutputToken{token, 0.0f, {}});
  }
}

// Rows share nothing but the logits, so they are done side by side, each by one thread.
void EngineImpl::sample(std::span<const float> logits) {
  for (size_t i = 0; i < rows_.size(); ++i) {
    results_[i].clear();
    score_prompt(rows_[i], logits, results_[i]);
  }
  const auto width = static_cast<size_t>(vocab());
  parallel_tasks(std::ssize(rows_), [&](int64_t i) {
    thread_local SamplerScratch scratch;  // keeps its memory from step to step
    const BatchRow& row = rows_[static_cast<size_t>(i)];
    RowResult& result = results_[static_cast<size_t>(i)];
    if (!row.completes() || !result.error.empty()) return;
    const auto last = static_cast<size_t>(row.first_logit + row.num_logits - 1);
    try {  // a row that fails does so alone, not with its batch
      sample_next(row, logits.subspan(last * width, width), scratch, result);
    } catch (const Error& error) {
      result.error = error.what();
    } catch (const std::bad_alloc&) {
      result.error = "out of memory while the next token was chosen";
    }
  });
}

}  // namespace tessera::engine
