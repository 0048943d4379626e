// The third call of a step: from logits to tokens. Reads the state and fills the results.
// SPDX-License-Identifier: MIT
#include "core/text.h"
#include "engine/engine_impl.h"
#include "tessera/core/error.h"

namespace tessera::engine {

// The next tokens after a row that has reached the end of what is known.
void EngineImpl::sample_next(const BatchRow& row, std::span<const float> logits,
                             RowResult& result) {
  const Sequence& sequence = *row.sequence;
  const ActiveRequest& active = *sequence.request;
  const Request& request = active.request;
  if (sequence.beams) {
    sequence.beams->search.best_tokens(logits, result.candidates);
    if (request.num_logprobs > 0) result.top = logprobs_of(logits, 0, request.num_logprobs).top;
    return;
  }
  if (active.max_new_tokens == 0) return;
  const bool may_stop = active.num_generated(sequence) >= request.min_new_tokens;
  const std::span<const int32_t> banned =
      may_stop ? std::span<const int32_t>() : active.stop_tokens;
  for (int32_t i = 0; i < sequence.num_rows; ++i) {  // several: siblings begin here
    const int32_t token =
        engine::sample(logits, request.sampling, sequence.counts, banned, active.seed,
                       sequence.index + i, std::ssize(sequence.tokens), scratch_);
    result.tokens.push_back(request.num_logprobs >= 0
                                ? logprobs_of(logits, token, request.num_logprobs)
                                : OutputToken{token, 0.0f, {}});
  }
}

void EngineImpl::sample_row(const BatchRow& row, std::span<const float> logits, RowResult& result) {
  const ActiveRequest& active = *row.sequence->request;
  const auto width = static_cast<size_t>(vocab());
  const int64_t end = row.start + row.num_tokens;
  for (int64_t i = 0; i < row.num_logits; ++i) {
    const std::span<const float> one =
        logits.subspan(static_cast<size_t>(row.first_logit + i) * width, width);
    const int64_t position = end - row.num_logits + i;
    if (is_broken(one)) {
      result.error = concat("the model's logits after token ", position,
                            " are not finite; load it with check_weights to find out why");
      return;
    }
    if (row.beam < 0 && position + 1 < active.num_prompt()) {
      const int32_t next = row.sequence->tokens[static_cast<size_t>(position) + 1];
      const double logit = one[static_cast<size_t>(next)];
      result.prompt_logprobs.push_back(static_cast<float>(logit - log_sum_exp(one)));
    } else if (i + 1 == row.num_logits && row.completes()) {
      sample_next(row, one, result);
    }
  }
}

void EngineImpl::sample(std::span<const float> logits) {
  for (size_t i = 0; i < rows_.size(); ++i) {
    results_[i].clear();
    try {
      sample_row(rows_[i], logits, results_[i]);
    } catch (const Error& error) {  // a row with nothing to choose fails alone, not its batch
      results_[i].error = error.what();
    }
  }
}

}  // namespace tessera::engine
