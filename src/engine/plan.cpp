// Token budget, pages, preemption and admission of one step.
// SPDX-License-Identifier: MIT
#include "engine/plan.h"

#include <algorithm>
#include <numeric>

namespace tessera::engine {
namespace {

struct Budget {
  int64_t tokens = 0;
  int64_t logits = 0;

  void spend(int64_t num_tokens, int64_t num_logits) {
    tokens -= num_tokens;
    logits -= num_logits;
  }
};

std::vector<int64_t> in_order(std::span<const PlanEntry> entries) {
  std::vector<int64_t> order(entries.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::sort(order.begin(), order.end(), [&](int64_t left, int64_t right) {
    const PlanEntry& a = entries[static_cast<size_t>(left)];
    const PlanEntry& b = entries[static_cast<size_t>(right)];
    return a.priority != b.priority ? a.priority > b.priority : a.arrival < b.arrival;
  });
  return order;
}

int64_t num_pages_of(int64_t num_tokens, int64_t page_size) {
  return (num_tokens + page_size - 1) / page_size;
}

bool is_one_step(const PlanEntry& entry) {
  return entry.num_beams > 0 || entry.num_known - entry.num_computed == 1 ||
         entry.num_computed >= entry.num_prompt;
}

// Its last token is being drawn.
bool has_nothing_left(const PlanEntry& entry) {
  return entry.num_beams == 0 && entry.num_known == entry.num_computed;
}

// A row that ends with the last known token is drawn from once for each sequence that continues.
int64_t num_logits_of(const PlanEntry& entry, int64_t start, int64_t num_tokens) {
  const int64_t end = start + num_tokens;
  const int64_t num_extra = end == entry.num_known ? entry.num_rows - 1 : 0;
  return std::max<int64_t>(0, end - std::max(start, entry.first_logit)) + num_extra;
}

// The longest chunk from `start` within the budget; tokens before first_logit cost no logits.
int64_t chunk_within(const PlanEntry& entry, int64_t start, const Budget& budget) {
  const int64_t free_tokens = std::max<int64_t>(0, entry.first_logit - start);
  // After the prompt a chunk is one token.
  const int64_t most = std::min(entry.num_known, std::max(entry.num_prompt, start + 1)) - start;
  const int64_t count =
      std::max<int64_t>(0, std::min({most, budget.tokens, budget.logits + free_tokens}));
  // Without logits for all that continue, the last token waits.
  const bool fits = num_logits_of(entry, start, count) <= budget.logits;
  return fits ? count : count - 1;
}

// Tokens for each running entry, before pages are looked at.
std::vector<int64_t> share_tokens(std::span<const PlanEntry> running,
                                  std::span<const int64_t> order, Budget& budget) {
  std::vector<int64_t> tokens(running.size(), 0);
  if (order.empty()) return tokens;
  const PlanEntry& first = running[static_cast<size_t>(order.front())];
  Budget reserve;
  if (!is_one_step(first)) reserve = {1, num_logits_of(first, first.num_computed, 1)};

  for (const int64_t index : order) {
    const PlanEntry& entry = running[static_cast<size_t>(index)];
    if (!is_one_step(entry) || has_nothing_left(entry)) continue;
    const int64_t rows = std::max<int64_t>(1, entry.num_beams);
    const int64_t logits =
        entry.num_beams > 0 ? rows : num_logits_of(entry, entry.num_computed, rows);
    const bool fits =
        rows <= budget.tokens - reserve.tokens && logits <= budget.logits - reserve.logits;
    if (!fits) continue;
    tokens[static_cast<size_t>(index)] = rows;
    budget.spend(rows, logits);
  }
  for (const int64_t index : order) {
    const PlanEntry& entry = running[static_cast<size_t>(index)];
    if (is_one_step(entry)) continue;
    const int64_t count = chunk_within(entry, entry.num_computed, budget);
    tokens[static_cast<size_t>(index)] = count;
    budget.spend(count, num_logits_of(entry, entry.num_computed, count));
  }
  return tokens;
}

// Pages an entry takes for `num_tokens`; `copies` says whether its last page is shared.
int64_t pages_for(const PlanEntry& entry, int64_t num_tokens, bool copies, int64_t page_size) {
  if (num_tokens == 0) return 0;
  if (entry.num_beams > 0) return entry.num_beam_pages;
  return num_pages_of(entry.num_computed + num_tokens, page_size) -
         static_cast<int64_t>(entry.pages.size()) + (copies ? 1 : 0);
}

// Gives out pages in order when there are not enough for all. Counts exactly who holds which page.
class Shortage {
 public:
  Shortage(std::span<const PlanEntry> running, const PlanLimits& limits)
      : running_(running), page_size_(limits.page_size), available_(limits.num_available_pages) {
    for (const PlanEntry& entry : running) {
      for (const int32_t page : entry.pages) {
        if (static_cast<size_t>(page) >= holds_.size())
          holds_.resize(static_cast<size_t>(page) + 1);
        ++holds_[static_cast<size_t>(page)];
      }
    }
  }

  // Cuts `tokens` to what there are pages for. Returns the entries that must be preempted.
  std::vector<int64_t> resolve(std::span<const int64_t> order, std::vector<int64_t>& tokens) {
    std::vector<int64_t> preempted;
    size_t end = order.size();
    for (size_t i = 0; i < end; ++i) {
      const PlanEntry& entry = running_[static_cast<size_t>(order[i])];
      int64_t& wanted = tokens[static_cast<size_t>(order[i])];
      if (wanted == 0) continue;
      int64_t fitting = tokens_that_fit(entry, wanted);
      while (fitting == 0 && end > i + 1) {
        const int64_t victim = order[--end];
        give_up(running_[static_cast<size_t>(victim)]);
        tokens[static_cast<size_t>(victim)] = 0;
        preempted.push_back(victim);
        fitting = tokens_that_fit(entry, wanted);
      }
      wanted = fitting;
      take(entry, fitting);
    }
    return preempted;
  }

 private:
  bool copies(const PlanEntry& entry) const {
    if (entry.num_beams > 0 || entry.pages.empty()) return false;
    if (entry.num_computed % page_size_ == 0) return false;  // the next token opens a page
    return holds_[static_cast<size_t>(entry.pages.back())] > 1;
  }

  int64_t tokens_that_fit(const PlanEntry& entry, int64_t wanted) const {
    if (entry.num_beams > 0) return entry.num_beam_pages <= available_ ? wanted : 0;
    const int64_t spare = available_ - (copies(entry) ? 1 : 0);
    if (spare < 0) return 0;
    const int64_t room =
        (static_cast<int64_t>(entry.pages.size()) + spare) * page_size_ - entry.num_computed;
    return std::clamp<int64_t>(room, 0, wanted);
  }

  void take(const PlanEntry& entry, int64_t num_tokens) {
    if (num_tokens == 0) return;
    const bool is_copied = copies(entry);
    available_ -= pages_for(entry, num_tokens, is_copied, page_size_);
    if (is_copied) --holds_[static_cast<size_t>(entry.pages.back())];
  }

  void give_up(const PlanEntry& entry) {
    for (const int32_t page : entry.pages) {
      if (--holds_[static_cast<size_t>(page)] == 0) ++available_;
    }
  }

  std::span<const PlanEntry> running_;
  int64_t page_size_;
  int64_t available_;
  std::vector<int32_t> holds_;  // [pages], by running entries
};

// Pages left for newcomers: neither taken by this step nor needed later by running prompts.
int64_t pages_to_spare(std::span<const PlanEntry> running, std::span<const int64_t> tokens,
                       const PlanLimits& limits) {
  int64_t spare = limits.num_available_pages;
  for (size_t i = 0; i < running.size(); ++i) {
    const PlanEntry& entry = running[i];
    spare -= pages_for(entry, tokens[i], entry.copies_last_page, limits.page_size);
    if (entry.num_beams > 0) continue;
    spare -= num_pages_of(entry.num_known, limits.page_size) -
             num_pages_of(entry.num_computed + tokens[i], limits.page_size);
  }
  return spare;
}

// What a step has left to give.
struct Spare {
  Budget budget;
  int64_t pages = 0;
  int64_t rows = 0;  // of the batch
};

std::vector<PlannedChunk> admit(std::span<const PlanEntry> waiting, Spare& spare,
                                const PlanLimits& limits) {
  std::vector<PlannedChunk> admitted;
  for (const int64_t index : in_order(waiting)) {
    const PlanEntry& entry = waiting[static_cast<size_t>(index)];
    const int64_t count = chunk_within(entry, entry.num_cached, spare.budget);
    if (entry.num_rows > spare.rows || count == 0) break;
    const int64_t pages = entry.num_idle_cached_pages +
                          num_pages_of(entry.num_known, limits.page_size) -
                          entry.num_cached / limits.page_size;
    // One more page for the first decode of each row, unless the entry has the pool to itself.
    const int64_t margin = spare.rows == limits.max_batch ? 0 : entry.num_rows;
    if (pages + margin > spare.pages) break;
    admitted.push_back({.entry = index, .num_tokens = count});
    spare.rows -= entry.num_rows;
    spare.pages -= pages;
    spare.budget.spend(count, num_logits_of(entry, entry.num_cached, count));
  }
  return admitted;
}

void add_drafts(std::span<const PlanEntry> running, Spare spare, int64_t page_size,
                std::vector<PlannedChunk>& chunks) {
  for (PlannedChunk& chunk : chunks) {
    const PlanEntry& entry = running[static_cast<size_t>(chunk.entry)];
    if (entry.num_draft == 0) continue;
    const int64_t end = entry.num_computed + chunk.num_tokens;
    const int64_t num_pages = num_pages_of(end, page_size);
    const int64_t room = (num_pages + std::max<int64_t>(0, spare.pages)) * page_size - end;
    const int64_t count = std::max<int64_t>(
        0, std::min({entry.num_draft, room, spare.budget.tokens, spare.budget.logits, spare.rows}));
    chunk.num_draft = count;
    spare.budget.spend(count, count);
    spare.rows -= count;
    spare.pages -= num_pages_of(end + count, page_size) - num_pages;
  }
}

std::vector<PlannedChunk> in_service_order(std::span<const PlanEntry> running,
                                           std::span<const int64_t> order,
                                           std::span<const int64_t> tokens) {
  std::vector<PlannedChunk> chunks;
  for (const bool one_step : {true, false}) {
    for (const int64_t index : order) {
      const int64_t count = tokens[static_cast<size_t>(index)];
      if (count > 0 && is_one_step(running[static_cast<size_t>(index)]) == one_step) {
        chunks.push_back({.entry = index, .num_tokens = count});
      }
    }
  }
  return chunks;
}

}  // namespace

Plan plan(std::span<const PlanEntry> running, std::span<const PlanEntry> waiting,
          const PlanLimits& limits) {
  Budget budget{limits.max_tokens, limits.max_logits};
  const std::vector<int64_t> order = in_order(running);
  std::vector<int64_t> tokens = share_tokens(running, order, budget);

  int64_t wanted_pages = 0;  // an upper bound: siblings that share a page all count a copy of it
  int64_t num_rows = 0;
  for (size_t i = 0; i < running.size(); ++i) {
    wanted_pages += pages_for(running[i], tokens[i], running[i].copies_last_page, limits.page_size);
    num_rows += running[i].num_rows;
  }
  Plan result;
  if (wanted_pages > limits.num_available_pages) {
    result.preempt = Shortage(running, limits).resolve(order, tokens);
    result.running = in_service_order(running, order, tokens);
    return result;
  }
  Spare spare{budget, pages_to_spare(running, tokens, limits), limits.max_batch - num_rows};
  result.admit = admit(waiting, spare, limits);
  result.running = in_service_order(running, order, tokens);
  add_drafts(running, spare, limits.page_size, result.running);
  return result;
}

}  // namespace tessera::engine
