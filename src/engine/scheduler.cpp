// From queues to a plan.
// SPDX-License-Identifier: MIT
#include "engine/scheduler.h"

#include <algorithm>
#include <random>

#include "engine/lookup.h"
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

// The tokens that may come from a cached prefix: those of the prompt. Generated tokens of a
// preempted sequence are computed one by one again, as they were the first time.
std::span<const int32_t> cacheable_tokens(const Sequence& sequence) {
  const auto num_prompt = static_cast<size_t>(sequence.request->num_prompt());
  const std::span<const int32_t> tokens = sequence.tokens;
  return tokens.first(std::min(tokens.size(), num_prompt + 1));  // the last is always computed
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

Scheduler::Scheduler(const EngineOptions& options, int64_t num_pages,
                     std::unique_ptr<DraftSource> draft_model)
    : options_(options),
      cache_(cache_options(options, num_pages)),
      speculator_(options, options.speculation == Speculation::lookup
                               ? std::make_unique<LookupSource>()
                               : std::move(draft_model)) {}

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
  speculator_.forget(sequence);
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

// Prompt logprobs need the logits of every position and a mean needs every state, so no position
// may come from the cache.
bool Scheduler::may_read_cache(const Sequence& sequence) const {
  const Request& request = sequence.request->request;
  return options_.use_prefix_cache && !request.wants_prompt_logprobs &&
         request.pooling != Pooling::mean;
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
  const bool is_last = sequence.num_known() - active.num_prompt() >= active.max_new_tokens;
  const bool is_over = sequence.num_drawing > 0 && is_last;
  PlanEntry entry{.num_known = sequence.num_known() - (is_over ? 1 : 0),
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
    entry.num_draft = std::ssize(sequence.draft);
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
  if (!active.was_started) {
    active.num_cached_tokens = sequence.num_computed;
    if (options_.now) active.start_time = options_.now();
  }
  active.was_started = true;
}

cache::PageList Scheduler::fork(const cache::PageList& list) {
  cache::PageList second = cache_.fork(list);
  if (second.tail >= 0) tail_copies_.emplace_back(list.tail, second.tail);
  return second;
}

void Scheduler::take_back(Sequence& sequence, int64_t num_computed) {
  sequence.num_computed = num_computed;
  cache_.shrink(sequence.pages, num_computed);
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
  speculator_.add_metrics(metrics);
  metrics.num_waiting = std::ssize(waiting_);
  metrics.num_preemptions = num_preemptions_;
  metrics.num_cached_tokens = num_cached_tokens_;
  metrics.num_pages = stats.num_pages;
  metrics.num_held_pages = stats.num_held;
  metrics.num_idle_pages = stats.num_idle;
  metrics.num_shared_pages = stats.num_shared;

  // Rows in use of each page. Lists that share a page may differ in what one wrote after the fork;
  // the larger count is right.
  const bool is_shared = stats.num_shared > 0;
  std::vector<int64_t> used(is_shared ? static_cast<size_t>(stats.num_pages) : 0, 0);
  for_each_list(running_, [&](const cache::PageList& list) {
    ++metrics.num_running;
    if (!is_shared) metrics.num_held_tokens += list.num_tokens;
    for (size_t i = 0; is_shared && i < list.pages.size(); ++i) {
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
  speculator_.check_pages();
}

}  // namespace tessera::engine
