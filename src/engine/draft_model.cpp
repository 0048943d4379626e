// The draft model's steps: catching up with the target, then one token after the other.
// SPDX-License-Identifier: MIT
#include "engine/draft_model.h"

#include <algorithm>
#include <random>
#include <utility>

namespace tessera::engine {
namespace {

// So many tokens are computed as decodes, one row each, which a graph can replay: a sequence whose
// whole draft was accepted is two tokens behind.
constexpr int64_t kMostDecodes = 2;

cache::CacheOptions cache_options(const EngineOptions& options, int64_t num_pages) {
  std::random_device device;
  const auto word = [&] { return (static_cast<uint64_t>(device()) << 32) | device(); };
  return {.num_pages = num_pages,
          .page_size = options.page_size,
          .use_prefix_index = options.use_prefix_cache,
          .hash_key = {word(), word()}};
}

}  // namespace

DraftModel::DraftModel(std::unique_ptr<Runner> runner, const EngineOptions& options)
    : runner_(std::move(runner)),
      options_(options),
      cache_(cache_options(options, runner_->num_pages())) {}

int64_t DraftModel::follow(uint64_t sequence, std::span<const int32_t> tokens) {
  const auto found = states_.find(sequence);
  if (found == states_.end()) return 0;
  State& state = found->second;
  const auto from = std::exchange(state.num_followed, std::ssize(tokens));
  const std::span<const int32_t> fresh = tokens.subspan(static_cast<size_t>(from));
  const auto end = std::ranges::mismatch(fresh, state.proposed).in1;
  if (!fresh.empty()) state.proposed.clear();
  return end - fresh.begin();
}

// Beyond its context it has none.
bool DraftModel::has_guess(uint64_t sequence) const {
  const auto found = states_.find(sequence);
  return found == states_.end() || found->second.num_followed <= options_.max_context;
}

void DraftModel::forget(uint64_t sequence) {
  const auto found = states_.find(sequence);
  if (found == states_.end()) return;
  cache_.release(found->second.pages);
  states_.erase(found);
}

// The last token is always computed, for its logits.
void DraftModel::keep_what_is_right(State& state, const DraftWish& wish) {
  const auto known = wish.tokens.subspan(static_cast<size_t>(state.num_kept));
  const auto end = std::ranges::mismatch(known, state.guesses).in1;
  state.num_kept = std::min(state.num_kept + (end - known.begin()), std::ssize(wish.tokens) - 1);
  state.guesses.clear();
  if (state.num_kept > 0) return cache_.shrink(state.pages, state.num_kept);
  cache_.release(state.pages);
  if (!options_.use_prefix_cache) return;
  state.num_kept = cache_.take_prefix(wish.tokens, wish.cache_salt, state.pages);
}

// Takes pages from sequences that are not in this call if there are too few.
bool DraftModel::make_room(State& state, int64_t num_tokens) {
  while (!cache_.grow(state.pages, num_tokens, copies_)) {
    State* oldest = nullptr;
    for (auto& [sequence, other] : states_) {
      const bool is_idle = other.last_call < num_calls_ && !other.pages.pages.empty();
      if (is_idle && (oldest == nullptr || other.last_call < oldest->last_call)) oldest = &other;
    }
    if (oldest == nullptr) return false;
    cache_.release(oldest->pages);
    oldest->num_kept = 0;
    oldest->guesses.clear();
  }
  return true;
}

void DraftModel::add_rows(Task& task, int64_t num_tokens) {
  const int64_t start = task.num_computed;
  const int64_t end = start + num_tokens;
  task.num_computed = end;
  const bool is_last = end >= std::ssize(task.wish->tokens);
  if (num_tokens > kMostDecodes) {
    rows_.push_back({.task = &task, .start = start, .num_tokens = num_tokens, .draws = is_last});
    return;
  }
  for (int64_t i = start; i < end; ++i) {
    rows_.push_back({.task = &task, .start = i, .num_tokens = 1, .draws = is_last && i + 1 == end});
  }
}

// The first step of a call: the tokens of each sequence that are missing, as far as one step goes.
void DraftModel::catch_up(std::span<const DraftWish> wishes) {
  ++num_calls_;
  tasks_.clear();
  rows_.clear();
  copies_.clear();
  for (const DraftWish& wish : wishes) states_[wish.sequence].last_call = num_calls_;
  tasks_.reserve(wishes.size());  // rows point to tasks
  int64_t num_tokens = options_.max_step_tokens;
  int64_t num_rows = options_.max_batch;
  for (const DraftWish& wish : wishes) {
    State& state = states_[wish.sequence];
    const auto num_known = std::ssize(wish.tokens);
    // Nothing is stored for the last guess.
    const int64_t most = std::min(wish.most, options_.max_context - num_known + 1);
    if (most <= 0) continue;
    keep_what_is_right(state, wish);
    const int64_t count = std::min(num_known - state.num_kept, num_tokens);
    const int64_t rows = count > kMostDecodes ? 1 : count;
    const bool is_last = state.num_kept + count == num_known;
    const int64_t end = state.num_kept + count + (is_last ? most - 1 : 0);
    if (count == 0 || rows > num_rows || !make_room(state, end)) continue;
    num_tokens -= count;
    num_rows -= rows;
    Task& task = tasks_.emplace_back(
        Task{.wish = &wish, .state = &state, .most = most, .num_computed = state.num_kept});
    add_rows(task, count);
    state.num_kept += count;
  }
  launch();
  for (const Task& task : tasks_) {
    // Not the last token, whose page may have to shrink.
    const std::span<const int32_t> tokens = task.wish->tokens;
    const auto count = std::min(static_cast<size_t>(task.state->num_kept), tokens.size() - 1);
    cache_.index_full_pages(task.state->pages, tokens.first(count), task.wish->cache_salt);
  }
}

// A further step, with the token drawn last for each sequence that wants more than num_guessed.
void DraftModel::go_on(int64_t num_guessed) {
  rows_.clear();
  for (Task& task : tasks_) {
    if (task.draw < 0 || task.most <= num_guessed) continue;
    add_rows(task, 1);
  }
  launch();
}

void DraftModel::fill_row(const Row& row) {
  model::HostBatch& batch = step_.batch;
  const DraftWish& wish = *row.task->wish;
  const cache::PageList& list = row.task->state->pages;
  const int64_t page_size = options_.page_size;
  const int64_t end = row.start + row.num_tokens;
  for (int64_t position = row.start; position < end; ++position) {
    const int64_t page = list.pages[static_cast<size_t>(position / page_size)];
    batch.slots.push_back(static_cast<int32_t>(page * page_size + position % page_size));
    batch.positions.push_back(static_cast<int32_t>(position));
    batch.tokens.push_back(position < std::ssize(wish.tokens)
                               ? wish.tokens[static_cast<size_t>(position)]
                               : -1 - row.task->draw);
  }
  batch.query_starts.push_back(static_cast<int32_t>(batch.tokens.size()));
  batch.seq_lens.push_back(static_cast<int32_t>(end));
  batch.max_pages = std::max(batch.max_pages, std::ssize(list.pages));
  if (!row.draws) return;
  batch.logit_rows.push_back(static_cast<int32_t>(batch.tokens.size()) - 1);
  model::DrawSettings& draw = step_.sampling.draws.emplace_back(wish.draw);
  draw.position = static_cast<int32_t>(end);
}

// Launches the step of rows_. Which tasks draw, and in which order, is noted for read.
void DraftModel::launch() {
  std::vector<Task*>& drawing = drawing_[num_steps_ % 2];
  drawing.clear();
  if (rows_.empty()) return;
  const auto chunks =
      std::ranges::stable_partition(rows_, [](const Row& row) { return row.num_tokens == 1; });
  model::HostBatch& batch = step_.batch;
  batch.clear();
  step_.sampling.clear();
  batch.num_decodes = std::ssize(rows_) - std::ssize(chunks);
  batch.query_starts.push_back(0);
  for (const Row& row : rows_) fill_row(row);
  for (const Row& row : rows_) {
    const std::vector<cache::PageId>& pages = row.task->state->pages.pages;
    batch.page_table.insert(batch.page_table.end(), pages.begin(), pages.end());
    batch.page_table.resize(
        batch.page_table.size() + static_cast<size_t>(batch.max_pages) - pages.size(), 0);
    if (!row.draws) continue;
    row.task->draw = static_cast<int32_t>(drawing.size());
    drawing.push_back(row.task);
  }
  step_.page_copies.clear();
  for (const cache::PageCopy& copy : copies_) {
    step_.page_copies.emplace_back(copy.source, copy.target);
  }
  copies_.clear();
  runner_->launch(step_);
  ++num_steps_;
}

// Takes in the tokens of the oldest step in progress. A draft ends where no token could be drawn.
void DraftModel::read(std::vector<Task*>& drawing) {
  const model::SampledStep sampled = runner_->wait();
  for (size_t i = 0; i < drawing.size(); ++i) {
    Task& task = *drawing[i];
    std::vector<int32_t>& draft = *task.wish->draft;
    if (sampled.tokens[i] < 0) task.most = std::ssize(draft);
    if (std::ssize(draft) < task.most) draft.push_back(sampled.tokens[i]);
  }
  runner_->release();
}

void DraftModel::propose(std::span<const DraftWish> wishes) {
  int64_t longest = 1;
  int64_t num_unread = num_steps_;
  catch_up(wishes);
  if (num_steps_ == num_unread) return;
  for (const Task& task : tasks_) {
    if (task.draw >= 0) longest = std::max(longest, task.most);
  }
  for (int64_t i = 1; i < longest; ++i) {
    go_on(i);  // before the step before it is read
    read(drawing_[num_unread++ % 2]);
  }
  while (num_unread < num_steps_) read(drawing_[num_unread++ % 2]);
  for (const Task& task : tasks_) {
    State& state = *task.state;
    const std::vector<int32_t>& draft = *task.wish->draft;
    state.num_followed = std::ssize(task.wish->tokens);
    state.proposed = draft;
    state.guesses.clear();
    if (draft.size() > 1) state.guesses.assign(draft.begin(), draft.end() - 1);
  }
}

void DraftModel::add_metrics(EngineMetrics& metrics) const {
  EngineMetrics own;
  runner_->add_metrics(own);
  metrics.num_draft_steps = num_steps_;
  metrics.draft_weight_bytes = own.weight_bytes;
  metrics.draft_kv_bytes = own.kv_bytes;
  metrics.num_held_draft_pages = cache_.stats().num_held;
}

void DraftModel::check_pages() const {
  std::vector<const cache::PageList*> lists;
  for (const auto& [sequence, state] : states_) lists.push_back(&state.pages);
  cache_.check(lists);
}

}  // namespace tessera::engine
