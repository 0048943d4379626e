// What the engine is doing and how well its memory is used.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <vector>

#include "engine/engine_impl.h"

namespace tessera::engine {
namespace {

template <class Visit>
void for_each_list(std::span<Sequence* const> sequences, Visit&& visit) {
  for (const Sequence* sequence : sequences) {
    if (sequence->beams && !sequence->beams->lists.empty()) {
      for (const cache::PageList& list : sequence->beams->lists) visit(list);
    } else {
      visit(sequence->pages);
    }
  }
}

}  // namespace

EngineMetrics EngineImpl::metrics() const {
  EngineMetrics metrics = counters_;
  const cache::CacheStats stats = cache_.stats();
  const int64_t page_size = options_.page_size;
  metrics.is_dead = is_dead_;
  metrics.num_waiting = std::ssize(waiting_);
  metrics.num_pages = stats.num_pages;
  metrics.num_held_pages = stats.num_held;
  metrics.num_idle_pages = stats.num_idle;
  metrics.num_shared_pages = stats.num_shared;
  metrics.kv_bytes = kv_.size_bytes();
  metrics.kv_bytes_per_token = kv_.page_bytes() / page_size;
  metrics.weight_bytes = model_->weight_bytes();
  metrics.activation_bytes = model_->activation_bytes();

  // Rows used of each page; lists that share a page agree on it up to what one wrote after a fork.
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
  return metrics;
}

void EngineImpl::check_pages() const {
  std::vector<const cache::PageList*> lists;
  const auto add = [&](const cache::PageList& list) { lists.push_back(&list); };
  for_each_list(running_, add);
  for_each_list(waiting_, add);
  cache_.check(lists);
}

}  // namespace tessera::engine
