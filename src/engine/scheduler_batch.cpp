// From a plan to a batch.
// SPDX-License-Identifier: MIT
#include <algorithm>

#include "engine/scheduler.h"
#include "tessera/core/error.h"

namespace tessera::engine {
namespace {

void add_rows(Sequence& sequence, const PlannedChunk& chunk, std::vector<BatchRow>& rows) {
  if (sequence.has_beams()) {
    for (int32_t beam = 0; beam < std::ssize(sequence.beams->lists); ++beam) {
      rows.push_back({.sequence = &sequence,
                      .beam = beam,
                      .start = sequence.num_computed,
                      .num_tokens = 1,
                      .completes = true,
                      .start_number = sequence.num_starts,
                      .num_draws = 1});
    }
    return;
  }
  const ActiveRequest& active = *sequence.request;
  BatchRow row{.sequence = &sequence,
               .start = sequence.num_computed,
               .num_tokens = chunk.num_tokens,
               .start_number = sequence.num_starts};
  const int64_t end = row.start + row.num_tokens;
  row.completes = end == sequence.num_known();
  if (row.completes && active.max_new_tokens > 0) {
    row.num_draws = sequence.beams ? 1 : sequence.num_rows;
  }
  if (active.request.wants_prompt_logprobs) {
    const int64_t first = std::max(row.start, first_logit_of(sequence));
    row.num_scores = std::max<int64_t>(0, std::min(end, active.num_prompt() - 1) - first);
  }
  const int64_t first_state = std::max(row.start, first_state_of(active));
  row.num_states = std::max<int64_t>(0, std::min(end, active.num_prompt()) - first_state);
  rows.push_back(row);
  for (; row.guess < chunk.num_draft; rows.push_back(row)) {
    ++row.guess;
    ++row.start;
  }
}

// A token that is still being drawn goes by the number of its draw.
int32_t token_at(const BatchRow& row, int64_t position) {
  const Sequence& sequence = *row.sequence;
  if (row.beam >= 0) {
    return sequence.beams->search.live()[static_cast<size_t>(row.beam)].tokens.back().token;
  }
  if (row.guess > 0) return sequence.draft[static_cast<size_t>(row.guess - 1)];
  if (position >= std::ssize(sequence.tokens)) return -1 - sequence.drawn_index;
  return sequence.tokens[static_cast<size_t>(position)];
}

}  // namespace

void Scheduler::advance(const BatchRow& row) {
  if (row.beam >= 0) return;  // beams move on when their step is committed
  Sequence& sequence = *row.sequence;
  sequence.num_computed = row.start + row.num_tokens;
  if (row.num_draws == 0 || sequence.beams || row.guess > 0) return;
  ++sequence.num_drawing;
  sequence.drawn_index = static_cast<int32_t>(row.first_draw);
}

void Scheduler::fill_row(BatchRow& row, model::HostBatch& batch) {
  Sequence& sequence = *row.sequence;
  cache::PageList& list = sequence.list_of(row.beam);
  const int64_t end = row.start + row.num_tokens;
  expects(cache_.grow(list, end, copies_), "engine: the plan promised pages that are not there");

  const auto page_size = options_.page_size;
  for (int64_t position = row.start; position < end; ++position) {
    const int64_t page = list.pages[static_cast<size_t>(position / page_size)];
    batch.slots.push_back(static_cast<int32_t>(page * page_size + position % page_size));
    batch.positions.push_back(static_cast<int32_t>(position));
    batch.tokens.push_back(token_at(row, position));
  }
  const auto num_tokens = static_cast<int32_t>(batch.tokens.size());
  row.first_draw = std::ssize(draw_rows_);
  draw_rows_.insert(draw_rows_.end(), static_cast<size_t>(row.num_draws), num_tokens - 1);
  row.first_score = std::ssize(score_rows_);
  const int64_t last_scored = std::min(end, sequence.request->num_prompt() - 1);
  for (int64_t position = last_scored - row.num_scores; position < last_scored; ++position) {
    score_rows_.push_back(num_tokens - static_cast<int32_t>(end - position));
  }
  batch.query_starts.push_back(num_tokens);
  batch.seq_lens.push_back(static_cast<int32_t>(end));
  if (list.tail >= 0) batch.tails.push_back(list.tail);
  batch.max_pages = std::max(batch.max_pages, std::ssize(list.pages));
}

// Decodes come first, as model::Batch wants them. Page tables are written last, when it is known
// how wide they are and which pages were replaced by copies.
void Scheduler::fill_batch(StepInput& step, std::vector<BatchRow>& rows) {
  const auto chunks =
      std::ranges::stable_partition(rows, [](const BatchRow& row) { return row.is_decode(); });
  model::HostBatch& batch = step.batch;
  batch.clear();
  copies_.clear();
  draw_rows_.clear();
  score_rows_.clear();
  batch.num_decodes = std::ssize(rows) - std::ssize(chunks);
  batch.query_starts.push_back(0);
  for (BatchRow& row : rows) fill_row(row, batch);
  batch.logit_rows = draw_rows_;
  batch.logit_rows.insert(batch.logit_rows.end(), score_rows_.begin(), score_rows_.end());
  auto& table = batch.page_table;
  for (const BatchRow& row : rows) {
    const cache::PageList& list = row.sequence->list_of(row.beam);
    table.insert(table.end(), list.pages.begin(), list.pages.end());
    table.resize(table.size() + static_cast<size_t>(batch.max_pages) - list.pages.size(), 0);
  }
  step.page_copies.clear();
  for (const cache::PageCopy& copy : copies_) {
    step.page_copies.emplace_back(copy.source, copy.target);
  }
}

bool Scheduler::assemble(const Plan& plan, StepInput& step, std::vector<BatchRow>& rows) {
  rows.clear();
  if (plan.running.empty() && plan.admit.empty() && plan.preempt.empty()) return false;
  // The plan's indices refer to the queues as they were; preempt and start change them.
  planned_running_ = running_;
  planned_waiting_.assign(waiting_.begin(), waiting_.begin() + std::ssize(waiting_entries_));
  const auto at = [](std::vector<Sequence*>& list, int64_t index) -> Sequence& {
    return *list[static_cast<size_t>(index)];
  };
  for (const int64_t index : plan.preempt) preempt(at(planned_running_, index));
  // Take all cached prefixes before any new page: taking a page may evict one of them.
  for (const PlannedChunk& chunk : plan.admit) {
    start(at(planned_waiting_, chunk.entry),
          waiting_entries_[static_cast<size_t>(chunk.entry)].num_cached);
  }
  for (const PlannedChunk& chunk : plan.running) {
    add_rows(at(planned_running_, chunk.entry), chunk, rows);
  }
  for (const PlannedChunk& chunk : plan.admit) {
    add_rows(at(planned_waiting_, chunk.entry), chunk, rows);
  }
  fill_batch(step, rows);
  for (const BatchRow& row : rows) advance(row);
  return true;
}

}  // namespace tessera::engine
