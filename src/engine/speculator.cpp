// Eligible sequences, rows to spare, and wishes to the source of guesses.
// SPDX-License-Identifier: MIT
#include "engine/speculator.h"

#include <algorithm>
#include <utility>

#include "engine/sampler.h"
#include "grammar/token_masks.h"
#include "model/kv_layout.h"
#include "tessera/core/error.h"

namespace tessera::engine {
namespace {

// Cuts a draft before the first token that the constraint does not allow.
void drop_refused(grammar::TokenMasks& masks, grammar::Progress progress,
                  std::vector<int32_t>& draft) {
  size_t count = 0;
  try {
    while (count < draft.size() && masks.advance(progress, draft[count])) ++count;
  } catch (const Error&) {  // too many ways to read the text: the draw itself will tell
  }
  draft.resize(count);
}

}  // namespace

Speculator::Speculator(const EngineOptions& options, std::unique_ptr<DraftSource> source)
    : options_(options), source_(std::move(source)) {}

// How many tokens to guess after the last one that is known or being drawn. Penalties need the list
// of tokens seen, which the device keeps as it draws, and a tail cannot go back.
int64_t Speculator::wanted_length(Sequence& sequence) {
  const ActiveRequest& active = *sequence.request;
  if (model::has_tails(options_.kv_type) || sequence.beams || sequence.num_rows > 1 ||
      active.has_penalties() || sequence.num_computed < active.num_prompt() ||
      sequence.num_known() != sequence.num_computed + 1) {
    return 0;
  }
  // The step itself yields a token, whatever comes of the draft.
  const int64_t most = active.max_new_tokens - (sequence.num_known() - active.num_prompt()) - 1;
  if (most <= 0) return 0;
  if (!sequence.drafter) {
    source_->follow(sequence.arrival, active.request.prompt);
    sequence.drafter.emplace(options_.max_draft_tokens, source_->rows_per_hit(),
                             active.num_prompt());
  }
  const int64_t num_foreseen = source_->follow(sequence.arrival, sequence.tokens);
  return sequence.drafter->next_length(std::ssize(sequence.tokens), num_foreseen, most);
}

// Rows that the next step has left when every sequence has its own.
int64_t Speculator::num_free_rows(std::span<Sequence* const> running) const {
  int64_t num_rows = 0;
  for (const Sequence* sequence : running) num_rows += sequence->num_rows;
  return std::min({options_.max_batch, options_.max_step_tokens, options_.max_step_logits}) -
         num_rows;
}

bool Speculator::expects_drafts(std::span<Sequence* const> running) {
  if (!source_ || num_free_rows(running) <= 0) return false;
  return std::ranges::any_of(running, [&](Sequence* sequence) {
    return wanted_length(*sequence) > 0 && source_->has_guess(sequence->arrival);
  });
}

void Speculator::refill(std::span<Sequence* const> running) {
  if (!source_) return;
  wishes_.clear();
  int64_t num_prompt_tokens = 0;  // that go before drafts
  for (Sequence* sequence : running) {
    sequence->draft.clear();
    const ActiveRequest& active = *sequence->request;
    num_prompt_tokens += std::max<int64_t>(0, active.num_prompt() - sequence->num_computed);
    if (sequence->num_drawing > 0) continue;
    const int64_t length = wanted_length(*sequence);
    if (length == 0) continue;
    const auto num_known = std::ssize(sequence->tokens);
    wishes_.push_back({.sequence = sequence->arrival,
                       .tokens = sequence->tokens,
                       .most = length,
                       .draw = draw_settings(active, sequence->index, num_known),
                       .cache_salt = active.request.cache_salt,
                       .draft = &sequence->draft});
  }
  if (wishes_.empty()) return;
  if (source_->runs_model()) {
    const int64_t num_free = num_free_rows(running) - num_prompt_tokens;
    if (num_free <= 0) return;
    const auto num_wishes = std::min<int64_t>(num_free, std::ssize(wishes_));
    wishes_.resize(static_cast<size_t>(num_wishes));
    for (DraftWish& wish : wishes_) wish.most = std::min(wish.most, num_free / num_wishes);
  }
  source_->propose(wishes_);
  for (Sequence* sequence : running) {
    const ActiveRequest& active = *sequence->request;
    if (active.masks) drop_refused(*active.masks, sequence->progress, sequence->draft);
  }
}

void Speculator::learn(Sequence& sequence, int64_t num_drafted, int64_t num_accepted) {
  sequence.drafter->learn(num_drafted, num_accepted);
}

void Speculator::forget(const Sequence& sequence) {
  if (source_) source_->forget(sequence.arrival);
}

void Speculator::give_up(std::span<Sequence* const> running) {
  source_ = nullptr;
  has_given_up_ = true;
  for (Sequence* sequence : running) sequence->draft.clear();
}

void Speculator::add_metrics(EngineMetrics& metrics) const {
  metrics.has_given_up_drafts = has_given_up_;
  if (source_) source_->add_metrics(metrics);
}

void Speculator::check_pages() const {
  if (source_) source_->check_pages();
}

}  // namespace tessera::engine
