// From requests to draws, and from drawn tokens to results.
// SPDX-License-Identifier: MIT
#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "core/text.h"
#include "engine/logprobs.h"
#include "tessera/core/error.h"

namespace tessera::engine {
namespace {

constexpr float kMostBias = 100.0f;
constexpr float kBanned = -std::numeric_limits<float>::infinity();

std::string broken_at(int64_t position) {
  return concat("the model's logits after token ", position,
                " are not finite; load it with check_weights to find out why");
}

model::SeenTokens seen_by(const Sequence& sequence, int32_t slot) {
  std::map<int32_t, int32_t> counts;
  const auto num_prompt = static_cast<size_t>(sequence.request->num_prompt());
  for (size_t i = 0; i < sequence.tokens.size(); ++i) {
    int32_t& count = counts[sequence.tokens[i]];
    count = i < num_prompt ? model::kSeenInPrompt : count + 1;
  }
  model::SeenTokens seen{.slot = slot};
  for (const auto& [token, count] : counts) {
    seen.tokens.push_back(token);
    seen.counts.push_back(count);
  }
  return seen;
}

}  // namespace

model::DrawSettings draw_settings(const ActiveRequest& active, int32_t sequence, int64_t position) {
  const SamplingParams& params = active.request.sampling;
  return {.seed = active.seed,
          .temperature = params.temperature,
          .top_k = params.top_k,
          .typical_p = params.typical_p,
          .top_p = params.top_p,
          .min_p = params.min_p,
          .sequence = sequence,
          .position = static_cast<int32_t>(position)};
}

Sampler::Sampler(int64_t vocab, int64_t max_batch)
    : vocab_(vocab),
      free_slots_(std::make_shared<std::vector<int32_t>>(static_cast<size_t>(max_batch))),
      results_(static_cast<size_t>(max_batch)) {
  std::iota(free_slots_->begin(), free_slots_->end(), 0);
}

// Draws for siblings that are about to begin get lists of their own, only for this step: the
// siblings are given theirs when they draw for the first time.
int32_t Sampler::list_of(const BatchRow& row, model::HostSampling& sampling) {
  Sequence& sequence = *row.sequence;
  if (row.num_draws > 1) {
    passing_slots_.emplace_back(free_slots_);
    sampling.new_lists.push_back(seen_by(sequence, passing_slots_.back().index()));
    return passing_slots_.back().index();
  }
  if (sequence.seen.index() < 0) {
    sequence.seen = CountSlot(free_slots_);
    sampling.new_lists.push_back(seen_by(sequence, sequence.seen.index()));
  }
  return sequence.seen.index();
}

// The mask of the row's draws; -1: none. A guess is drawn from what may follow the guesses before
// it. After guesses that complete the text no draw counts, so that it needs no mask.
int32_t Sampler::add_mask(const BatchRow& row, model::HostSampling& sampling) {
  Sequence& sequence = *row.sequence;
  const ActiveRequest& active = *sequence.request;
  if (!active.masks || sequence.beams || row.num_draws == 0 || sequence.has_ended) return -1;
  const auto start = Clock::now();
  const auto num_words = static_cast<size_t>(model::words_of_mask(vocab_));
  const size_t first = sampling.masks.size();
  try {
    if (row.guess == 0) {
      sequence.constraint_error.clear();
      guessed_ = sequence.progress;
    }
    if (row.guess > 0) {
      active.masks->advance(guessed_, sequence.draft[static_cast<size_t>(row.guess - 1)]);
    }
    if (row.guess > 0 && active.masks->is_final(guessed_)) return -1;
    sampling.masks.resize(first + num_words);
    const std::span<uint32_t> bits(sampling.masks.data() + first, num_words);
    active.masks->fill(guessed_, bits);
    for (const int32_t token : active.end_tokens) {
      const uint32_t bit = 1u << (static_cast<uint32_t>(token) % 32);
      uint32_t& word = bits[static_cast<size_t>(token) / 32];
      word = active.masks->is_complete(guessed_) ? word | bit : word & ~bit;
    }
  } catch (const Error& error) {
    sampling.masks.resize(first);
    // Without a mask a guess may draw what is refused when it is committed.
    if (row.guess == 0) sequence.constraint_error = error.what();
    return -1;
  }
  ++num_masks_;
  mask_seconds_ += std::chrono::duration<double>(Clock::now() - start).count();
  return static_cast<int32_t>(first / num_words);
}

void Sampler::add_metrics(EngineMetrics& metrics) const {
  metrics.num_masks = num_masks_;
  metrics.mask_seconds = mask_seconds_;
}

void Sampler::add_draw(const BatchRow& row, int32_t number, model::HostSampling& sampling) {
  const Sequence& sequence = *row.sequence;
  const ActiveRequest& active = *sequence.request;
  model::DrawSettings draw;
  if (!sequence.beams) {  // a beam's draw only tells whether its logits are finite
    const SamplingParams& params = active.request.sampling;
    draw = draw_settings(active, sequence.index + number, row.start + row.num_tokens);
    if (active.has_penalties()) {
      draw.slot = list_of(row, sampling);
      draw.repetition = params.repetition_penalty;
      draw.presence = params.presence_penalty;
      draw.frequency = params.frequency_penalty;
      sampling.has_lists = true;
    }
  }
  sampling.draws.push_back(draw);
  add_biases(row, sampling);
}

// Biases of the request and, before min_new_tokens, bans of what would stop it.
void Sampler::add_biases(const BatchRow& row, model::HostSampling& sampling) {
  const ActiveRequest& active = *row.sequence->request;
  std::vector<std::pair<int32_t, float>>& list = biases_;
  list.clear();
  if (!row.sequence->beams) {
    for (const auto& [token, bias] : active.request.sampling.logit_bias) {
      list.emplace_back(token, std::clamp(bias, -kMostBias, kMostBias));
    }
    const int64_t num_generated = row.start + row.num_tokens - active.num_prompt();
    if (num_generated < active.request.min_new_tokens) {
      for (const int32_t token : active.stop_tokens) {
        if (token >= 0 && token < vocab_) list.emplace_back(token, kBanned);
      }
    }
  }
  if (list.empty() && sampling.bias_starts.empty()) return;
  std::ranges::stable_sort(list, {}, &std::pair<int32_t, float>::first);
  auto& starts = sampling.bias_starts;
  // Draws before the first with biases have none.
  starts.resize(sampling.draws.size(), static_cast<int32_t>(sampling.bias_tokens.size()));
  for (size_t i = 0; i < list.size(); ++i) {
    if (i > 0 && list[i].first == list[i - 1].first) {  // given twice, or biased and banned
      sampling.bias_values.back() += list[i].second;
      continue;
    }
    sampling.bias_tokens.push_back(list[i].first);
    sampling.bias_values.push_back(list[i].second);
  }
  starts.push_back(static_cast<int32_t>(sampling.bias_tokens.size()));
}

void Sampler::describe(std::span<const BatchRow> rows, model::HostSampling& sampling) {
  sampling.clear();
  passing_slots_.clear();
  int64_t num_tokens = 0;
  for (const BatchRow& row : rows) {
    num_tokens += row.num_tokens;
    for (int64_t i = row.num_states; i > 0; --i) {
      sampling.state_rows.push_back(static_cast<int32_t>(num_tokens - i));
    }
    const Request& request = row.sequence->request->request;
    for (int32_t i = 0; i < row.num_draws; ++i) add_draw(row, i, sampling);
    if (row.num_draws > 0) {
      if (row.sequence->beams) {
        sampling.wants_logits = true;
      } else {
        sampling.num_top = std::max(sampling.num_top, request.num_logprobs);
      }
    }
    const int64_t end = std::min(row.start + row.num_tokens, std::ssize(request.prompt) - 1);
    for (int64_t position = end - row.num_scores; position < end; ++position) {
      sampling.scored_tokens.push_back(request.prompt[static_cast<size_t>(position + 1)]);
    }
  }
}

void Sampler::add_masks(std::span<const BatchRow> rows, model::HostSampling& sampling) {
  for (const BatchRow& row : rows) {
    const int32_t mask = add_mask(row, sampling);
    for (int64_t i = row.first_draw; i < row.first_draw + row.num_draws; ++i) {
      sampling.draws[static_cast<size_t>(i)].mask = mask;
    }
  }
}

void Sampler::read_draws(const BatchRow& row, const model::SampledStep& step,
                         RowResult& result) const {
  const Sequence& sequence = *row.sequence;
  const Request& request = sequence.request->request;
  const auto num_draws = std::ssize(step.tokens);
  for (int64_t i = row.first_draw; i < row.first_draw + row.num_draws; ++i) {
    const auto index = static_cast<size_t>(i);
    OutputToken drawn{.token = step.tokens[index]};
    if (drawn.token < 0) {
      result.error = drawn.token == -1
                         ? broken_at(row.start + row.num_tokens - 1)
                         : concat("sample: none of ", vocab_,
                                  " tokens is left to choose; all are banned, refused by the "
                                  "constraint or have a logit of -infinity");
      return;
    }
    if (sequence.beams) {
      const auto width = static_cast<size_t>(vocab_);
      const std::span<const float> logits = step.logits.subspan(index * width, width);
      sequence.beams->search.best_tokens(logits, result.candidates);
      if (request.num_logprobs > 0) result.top = logprobs_of(logits, 0, request.num_logprobs).top;
      return;
    }
    if (request.num_logprobs >= 0) {
      drawn.logprob = step.logprobs[index];
      const size_t num_top = step.top_tokens.size() / static_cast<size_t>(num_draws);
      for (size_t t = 0; t < static_cast<size_t>(request.num_logprobs); ++t) {
        const size_t at = index * num_top + t;
        if (step.top_tokens[at] < 0) break;
        drawn.top.push_back({step.top_tokens[at], step.top_logprobs[at]});
      }
    }
    result.tokens.push_back(std::move(drawn));
  }
}

void Sampler::read_scores(const BatchRow& row, const model::SampledStep& step,
                          RowResult& result) const {
  const std::span<const float> scores = step.scores.subspan(static_cast<size_t>(row.first_score),
                                                            static_cast<size_t>(row.num_scores));
  result.prompt_logprobs.assign(scores.begin(), scores.end());
  const auto broken = std::ranges::find_if(scores, [](float score) { return std::isnan(score); });
  if (broken == scores.end()) return;
  const int64_t end = std::min(row.start + row.num_tokens, row.sequence->request->num_prompt() - 1);
  result.error = broken_at(end - row.num_scores + (broken - scores.begin()));
}

void Sampler::read_states(std::span<const BatchRow> rows, const model::SampledStep& step) {
  int64_t num_states = 0;
  for (const BatchRow& row : rows) num_states += row.num_states;
  if (num_states == 0) return;
  const size_t hidden = step.states.size() / static_cast<size_t>(num_states);
  size_t first = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const size_t count = static_cast<size_t>(rows[i].num_states) * hidden;
    const std::span<const float> states = step.states.subspan(first, count);
    first += count;
    const auto broken = std::ranges::find_if(states, [](float x) { return !std::isfinite(x); });
    if (broken != states.end()) {
      const auto place = static_cast<size_t>(broken - states.begin()) / hidden;
      results_[i].error = concat(
          "the model's hidden state of token ",
          rows[i].start + rows[i].num_tokens - rows[i].num_states + static_cast<int64_t>(place),
          " is not finite; load it with check_weights to find out why");
    }
    results_[i].states = states;
  }
}

std::span<RowResult> Sampler::read(std::span<const BatchRow> rows, const model::SampledStep& step) {
  for (size_t i = 0; i < rows.size(); ++i) {
    results_[i].clear();
    if (rows[i].sequence->has_ended) continue;
    if (rows[i].num_draws > 0 && !rows[i].sequence->constraint_error.empty()) {
      results_[i].error = rows[i].sequence->constraint_error;
      continue;
    }
    read_scores(rows[i], step, results_[i]);
    if (results_[i].error.empty()) read_draws(rows[i], step, results_[i]);
  }
  read_states(rows, step);
  return std::span(results_).first(rows.size());
}

}  // namespace tessera::engine
