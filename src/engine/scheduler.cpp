// From queues to a plan, and from the plan to a batch.
// SPDX-License-Identifier: MIT
#include "engine/scheduler.h"

#include <algorithm>
#include <random>

#include "model/kv_layout.h"
#include "tessera/core/error.h"

namespace tessera::engine {
namespace {

uint64_t random_word() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

cache::CacheOptions cache_options(const EngineOptions& options, int64_t num_pages) {
  return {.num_pages = num_pages,
          .page_size = options.page_size,
          .use_prefix_index = options.use_prefix_cache,
          .hash_key = {random_word(), random_word()},
          .num_tails = model::has_tails(options.kv_type) ? options.max_batch : 0};
}

BeamSettings settings_of(const ActiveRequest& active) {
  return {.width = active.request.beam_width,
          .num_results = active.request.num_outputs,
          .length_penalty = active.request.length_penalty,
          .min_new_tokens = active.request.min_new_tokens,
          .max_new_tokens = active.max_new_tokens,
          .stop_tokens = active.stop_tokens};
}

bool goes_before(const Sequence* a, const Sequence* b) {
  const int32_t left = a->request->request.priority, right = b->request->request.priority;
  return left != right ? left > right : a->arrival < b->arrival;
}

// The first position whose logits are needed: the last known token's, or the next one whose
// prompt logprob is still missing.
int64_t first_logit_of(const Sequence& sequence) {
  const ActiveRequest& active = *sequence.request;
  const auto num_logprobs = std::ssize(active.prompt_logprobs);
  const bool wants_more =
      active.request.wants_prompt_logprobs && num_logprobs < active.num_prompt() - 1;
  return wants_more ? num_logprobs : sequence.num_known() - 1;
}

// The tokens that may come from a cached prefix: those of the prompt. Generated tokens of a
// preempted sequence are computed one by one again, as they were the first time.
std::span<const int32_t> cacheable_tokens(const Sequence& sequence) {
  const auto num_prompt = static_cast<size_t>(sequence.request->num_prompt());
  const std::span<const int32_t> tokens = sequence.tokens;
  return tokens.first(std::min(tokens.size(), num_prompt + 1));  // the last is always computed
}

void add_rows(Sequence& sequence, int64_t num_tokens, std::vector<BatchRow>& rows) {
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
               .num_tokens = num_tokens,
               .start_number = sequence.num_starts};
  const int64_t end = row.start + num_tokens;
  row.completes = end == sequence.num_known();
  if (row.completes && active.max_new_tokens > 0) {
    row.num_draws = sequence.beams ? 1 : sequence.num_rows;
  }
  if (active.request.wants_prompt_logprobs) {
    const int64_t first = std::max(row.start, first_logit_of(sequence));
    row.num_scores = std::max<int64_t>(0, std::min(end, active.num_prompt() - 1) - first);
  }
  rows.push_back(row);
}

// A token that is still being drawn goes by the number of its draw.
int32_t token_at(const BatchRow& row, int64_t position) {
  const Sequence& sequence = *row.sequence;
  if (row.beam >= 0) {
    return sequence.beams->search.live()[static_cast<size_t>(row.beam)].tokens.back().token;
  }
  if (position >= std::ssize(sequence.tokens)) return -1 - sequence.drawn_index;
  return sequence.tokens[static_cast<size_t>(position)];
}

template <class Visit>
void for_each_list(std::span<Sequence* const> sequences, Visit&& visit) {
  for (const Sequence* sequence : sequences) {
    if (sequence->has_beams()) {
      for (const cache::PageList& list : sequence->beams->lists) visit(list);
    } else {
      visit(sequence->pages);
    }
  }
}

}  // namespace

Scheduler::Scheduler(const EngineOptions& options, int64_t num_pages)
    : options_(options), cache_(cache_options(options, num_pages)) {}

void Scheduler::enqueue(Sequence& sequence) {
  sequence.is_running = false;
  sequence.num_computed = 0;
  sequence.num_drawing = 0;  // its token is appended all the same, when the step has ended
  ++sequence.num_starts;
  sequence.seen = {};
  if (sequence.request->is_beam_search()) {
    sequence.beams = BeamGroup{BeamSearch(settings_of(*sequence.request))};
  }
  waiting_.insert(std::ranges::upper_bound(waiting_, &sequence, goes_before), &sequence);
}

void Scheduler::add_running(Sequence& sequence) {
  sequence.is_running = true;
  running_.push_back(&sequence);
}

// Pages and lists may be given to others at once: what a step in progress writes to them comes
// before what later steps do.
void Scheduler::remove(Sequence& sequence) {
  release_pages(sequence);
  sequence.seen = {};
  sequence.has_ended = true;
  std::erase(sequence.is_running ? running_ : waiting_, &sequence);
  sequence.is_running = false;
}

int64_t Scheduler::num_waiting_to_start() const {
  return std::ranges::count_if(
      waiting_, [](const Sequence* sequence) { return !sequence->request->was_started; });
}

void Scheduler::release_pages(Sequence& sequence) {
  if (!has_sound_pages_) return;
  cache_.release(sequence.pages);
  if (!sequence.beams) return;
  for (cache::PageList& list : sequence.beams->lists) cache_.release(list);
  sequence.beams->lists.clear();
}

// Prompt logprobs need the logits of every position, so no position may come from the cache.
bool Scheduler::may_read_cache(const Sequence& sequence) const {
  return options_.use_prefix_cache && !sequence.request->request.wants_prompt_logprobs;
}

void Scheduler::describe_beams(Sequence& sequence, PlanEntry& entry) const {
  const std::vector<cache::PageList>& lists = sequence.beams->lists;
  entry.num_beams = static_cast<int32_t>(lists.size());
  // At the start of a page every beam takes a new one. Otherwise, of the beams that share a
  // part-filled page, all but one must copy it.
  std::vector<int32_t>& pages = sequence.beam_pages;
  pages.clear();
  for (const cache::PageList& list : lists) pages.push_back(list.pages.back());
  std::ranges::sort(pages);
  const auto num_repeated = std::ssize(std::ranges::unique(pages));
  const bool opens_page = lists.front().num_tokens % options_.page_size == 0;
  entry.num_beam_pages = opens_page ? entry.num_beams : num_repeated;
  pages.clear();
  for (const cache::PageList& list : lists) {
    pages.insert(pages.end(), list.pages.begin(), list.pages.end());
  }
  entry.pages = pages;
}

PlanEntry Scheduler::entry_of(Sequence& sequence) const {
  const ActiveRequest& active = *sequence.request;
  // A sequence that ends with the token being drawn computes nothing more.
  const bool is_last = sequence.num_drawing > 0 &&
                       sequence.num_known() - active.num_prompt() >= active.max_new_tokens;
  PlanEntry entry{.num_known = sequence.num_known() - (is_last ? 1 : 0),
                  .num_prompt = active.num_prompt(),
                  .num_computed = sequence.num_computed,
                  .first_logit = first_logit_of(sequence),
                  .pages = sequence.pages.pages,
                  .num_rows = sequence.num_rows,
                  .priority = active.request.priority,
                  .arrival = sequence.arrival};
  if (sequence.has_beams()) {
    describe_beams(sequence, entry);
  } else if (sequence.is_running) {
    const cache::PageList& list = sequence.pages;
    entry.copies_last_page = list.num_tokens % options_.page_size != 0 &&
                             cache_.pages_to_grow(list, list.num_tokens + 1) > 0;
  } else if (may_read_cache(sequence)) {
    const cache::PrefixMatch match =
        cache_.find_prefix(cacheable_tokens(sequence), active.request.cache_salt);
    entry.num_cached = match.num_tokens;
    entry.num_idle_cached_pages = match.num_idle_pages;
  }
  return entry;
}

Plan Scheduler::plan() {
  running_entries_.clear();
  waiting_entries_.clear();
  int64_t num_rows = 0;
  for (Sequence* sequence : running_) {
    running_entries_.push_back(entry_of(*sequence));
    num_rows += sequence->num_rows;
  }
  // Looking up a prefix hashes the prompt, so stop once no plan could admit more: when the batch
  // rows, the tokens or the pages are used up.
  const auto num_open = std::min<int64_t>(options_.max_batch - num_rows, std::ssize(waiting_));
  int64_t num_tokens = 0, num_pages = 0;
  for (Sequence* sequence : std::span(waiting_).first(static_cast<size_t>(num_open))) {
    const PlanEntry& entry = waiting_entries_.emplace_back(entry_of(*sequence));
    num_tokens += entry.num_known - entry.num_cached;
    num_pages += (entry.num_known - entry.num_cached) / options_.page_size;
    if (num_tokens >= options_.max_step_tokens || num_pages > cache_.num_available()) break;
  }
  return engine::plan(running_entries_, waiting_entries_,
                      {.max_tokens = options_.max_step_tokens,
                       .max_batch = options_.max_batch,
                       .max_logits = options_.max_step_logits,
                       .page_size = options_.page_size,
                       .num_available_pages = cache_.num_available()});
}

void Scheduler::preempt(Sequence& sequence) {
  release_pages(sequence);
  std::erase(running_, &sequence);
  enqueue(sequence);
  ++num_preemptions_;
}

void Scheduler::start(Sequence& sequence, int64_t num_cached) {
  ActiveRequest& active = *sequence.request;
  std::erase(waiting_, &sequence);
  add_running(sequence);
  if (may_read_cache(sequence)) {
    sequence.num_computed =
        cache_.take_prefix(cacheable_tokens(sequence), active.request.cache_salt, sequence.pages);
  }
  expects_equal(sequence.num_computed, num_cached, "engine: tokens of a cached prefix");
  num_cached_tokens_ += sequence.num_computed;
  if (!active.was_started) active.num_cached_tokens = sequence.num_computed;
  active.was_started = true;
}

void Scheduler::advance(const BatchRow& row) {
  if (row.beam >= 0) return;  // beams move on when their step is committed
  Sequence& sequence = *row.sequence;
  sequence.num_computed = row.start + row.num_tokens;
  if (row.num_draws == 0 || sequence.beams) return;
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
    add_rows(at(planned_running_, chunk.entry), chunk.num_tokens, rows);
  }
  for (const PlannedChunk& chunk : plan.admit) {
    add_rows(at(planned_waiting_, chunk.entry), chunk.num_tokens, rows);
  }
  fill_batch(step, rows);
  for (const BatchRow& row : rows) advance(row);
  return true;
}

cache::PageList Scheduler::fork(const cache::PageList& list) {
  cache::PageList second = cache_.fork(list);
  if (second.tail >= 0) tail_copies_.emplace_back(list.tail, second.tail);
  return second;
}

// Others would compute these tokens as part of a prompt, so only tokens that were computed as a
// prompt here may be found by them.
void Scheduler::index_prompt(Sequence& sequence, int64_t num_computed) {
  const ActiveRequest& active = *sequence.request;
  const int64_t count = std::min(num_computed, active.num_prompt());
  cache_.index_full_pages(
      sequence.pages, std::span<const int32_t>(sequence.tokens).first(static_cast<size_t>(count)),
      active.request.cache_salt);
}

void Scheduler::add_metrics(EngineMetrics& metrics) const {
  const cache::CacheStats stats = cache_.stats();
  const int64_t page_size = options_.page_size;
  metrics.num_waiting = std::ssize(waiting_);
  metrics.num_preemptions = num_preemptions_;
  metrics.num_cached_tokens = num_cached_tokens_;
  metrics.num_pages = stats.num_pages;
  metrics.num_held_pages = stats.num_held;
  metrics.num_idle_pages = stats.num_idle;
  metrics.num_shared_pages = stats.num_shared;

  // Rows in use of each page. Lists that share a page may differ in what one wrote after the fork;
  // the larger count is right.
  std::vector<int64_t> used(static_cast<size_t>(stats.num_pages), 0);
  for_each_list(running_, [&](const cache::PageList& list) {
    ++metrics.num_running;
    for (size_t i = 0; i < list.pages.size(); ++i) {
      const int64_t rows =
          std::min(page_size, list.num_tokens - static_cast<int64_t>(i) * page_size);
      int64_t& most = used[static_cast<size_t>(list.pages[i])];
      most = std::max(most, rows);
    }
  });
  for (const int64_t rows : used) metrics.num_held_tokens += rows;
  const auto held_rows = static_cast<double>(stats.num_held * page_size);
  if (stats.num_held > 0) {
    metrics.kv_waste = 1.0 - static_cast<double>(metrics.num_held_tokens) / held_rows;
    metrics.kv_share_of_contiguous =
        held_rows / static_cast<double>(options_.max_context * metrics.num_running);
  }
}

void Scheduler::check_pages() const {
  std::vector<const cache::PageList*> lists;
  const auto add = [&](const cache::PageList& list) { lists.push_back(&list); };
  for_each_list(running_, add);
  for_each_list(waiting_, add);
  cache_.check(lists);
}

}  // namespace tessera::engine
