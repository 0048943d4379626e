// Prompt logprobs, sampled tokens and beam candidates of one step.
// SPDX-License-Identifier: MIT
#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <new>

#include "core/parallel.h"
#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::engine {
namespace {

std::string broken_at(int64_t position) {
  return concat("the model's logits after token ", position,
                " are not finite; load it with check_weights to find out why");
}

// The tokens that follow a row which ends with the last known token.
void sample_next(const BatchRow& row, std::span<const float> logits, SamplerScratch& scratch,
                 RowResult& result) {
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
  for (int32_t i = 0; i < sequence.num_rows; ++i) {  // more than one where siblings begin
    const int32_t token =
        engine::sample(logits, request.sampling, sequence.counts, banned, active.seed,
                       sequence.index + i, std::ssize(sequence.tokens), scratch);
    result.tokens.push_back(request.num_logprobs >= 0
                                ? logprobs_of(logits, token, request.num_logprobs)
                                : OutputToken{token, 0.0f, {}});
  }
}

}  // namespace

Sampler::Sampler(int64_t vocab, int64_t max_batch)
    : vocab_(vocab), results_(static_cast<size_t>(max_batch)) {}

// The logprobs of the prompt tokens that follow this row's. Positions are independent.
void Sampler::score_prompt(const BatchRow& row, std::span<const float> logits,
                           RowResult& result) const {
  const ActiveRequest& active = *row.sequence->request;
  const int64_t first = row.start + row.num_tokens - row.num_logits;  // position
  const int64_t count = std::clamp<int64_t>(active.num_prompt() - 1 - first, 0, row.num_logits);
  if (row.beam >= 0 || count == 0) return;
  const int32_t* next = row.sequence->tokens.data() + first + 1;
  result.prompt_logprobs.resize(static_cast<size_t>(count));
  float* scores = result.prompt_logprobs.data();
  parallel_for(count, vocab_, [&](int64_t i) {
    const std::span<const float> one = row_of(logits, row.first_logit + i);
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

std::span<RowResult> Sampler::sample(std::span<const BatchRow> rows,
                                     std::span<const float> logits) {
  for (size_t i = 0; i < rows.size(); ++i) {
    results_[i].clear();
    score_prompt(rows[i], logits, results_[i]);
  }
  // Rows share only the logits, so each is sampled by one thread, several at a time.
  parallel_tasks(std::ssize(rows), [&](int64_t i) {
    thread_local SamplerScratch scratch;  // keeps its memory from step to step
    const BatchRow& row = rows[static_cast<size_t>(i)];
    RowResult& result = results_[static_cast<size_t>(i)];
    if (!row.completes() || !result.error.empty()) return;
    try {  // an error must end this row's request only, not the whole batch
      sample_next(row, row_of(logits, row.first_logit + row.num_logits - 1), scratch, result);
    } catch (const Error& error) {
      result.error = error.what();
    } catch (const std::bad_alloc&) {
      result.error = "out of memory while the next token was chosen";
    }
  });
  return std::span(results_).first(rows.size());
}

}  // namespace tessera::engine
