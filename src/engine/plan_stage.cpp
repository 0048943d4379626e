// The first call of a step: what the queues look like to the plan.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <span>

#include "engine/engine_impl.h"

namespace tessera::engine {

void EngineImpl::end_cancelled_and_late() {
  std::optional<Clock::time_point> now;  // asked once, and only where a deadline wants it
  std::vector<std::pair<ActiveRequest*, FinishReason>> ending;
  for (const auto& [id, request] : requests_) {
    const std::optional<Clock::time_point>& deadline = request->request.deadline;
    if (deadline && !now) now = options_.now();
    if (request->is_cancelled) {
      ending.emplace_back(request.get(), FinishReason::cancelled);
    } else if (deadline && *now >= *deadline) {
      ending.emplace_back(request.get(), FinishReason::deadline);
    }
  }
  for (const auto& [request, reason] : ending) end_request(*request, reason);
}

// Logprobs of a prompt need every position's logits, so none may be skipped.
bool EngineImpl::may_read_cache(const Sequence& sequence) const {
  return options_.use_prefix_cache && !sequence.request->request.wants_prompt_logprobs;
}

// What a cached prefix may hold of it: of a sequence that was preempted the prompt alone, because
// its generated tokens are computed one by one, as they were before.
std::span<const int32_t> EngineImpl::cacheable_tokens(const Sequence& sequence) const {
  const auto num_prompt = static_cast<size_t>(sequence.request->num_prompt());
  const std::span<const int32_t> tokens = sequence.tokens;
  return tokens.first(std::min(tokens.size(), num_prompt + 1));  // the last is always computed
}

void EngineImpl::describe_beams(Sequence& sequence, PlanEntry& entry) const {
  const std::vector<cache::PageList>& lists = sequence.beams->lists;
  entry.num_beams = static_cast<int32_t>(lists.size());
  // Each opens a page, or all but one of those that share a part-filled page copy it.
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

int64_t EngineImpl::first_logit_of(const Sequence& sequence) const {
  const ActiveRequest& active = *sequence.request;
  const auto num_logprobs = std::ssize(active.prompt_logprobs);
  const bool wants_more =
      active.request.wants_prompt_logprobs && num_logprobs < active.num_prompt() - 1;
  return wants_more ? num_logprobs : std::ssize(sequence.tokens) - 1;
}

PlanEntry EngineImpl::entry_of(Sequence& sequence) const {
  const ActiveRequest& active = *sequence.request;
  const auto num_known = std::ssize(sequence.tokens);
  PlanEntry entry{.num_known = num_known,
                  .num_prompt = active.num_prompt(),
                  .num_computed = sequence.num_computed,
                  .first_logit = first_logit_of(sequence),
                  .pages = sequence.pages.pages,
                  .num_rows = sequence.num_rows,
                  .priority = active.request.priority,
                  .arrival = sequence.arrival};
  if (sequence.beams && !sequence.beams->lists.empty()) {
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

Plan EngineImpl::plan_step() {
  end_cancelled_and_late();
  running_entries_.clear();
  waiting_entries_.clear();
  int64_t num_rows = 0;
  for (Sequence* sequence : running_) {
    running_entries_.push_back(entry_of(*sequence));
    num_rows += sequence->num_rows;
  }
  // Looking up prefixes costs a hash of the prompt, so it ends where no plan could admit more: at
  // the batch rows, the tokens or the pages there are.
  const auto num_open = std::min<int64_t>(options_.max_batch - num_rows, std::ssize(waiting_));
  int64_t num_tokens = 0, num_pages = 0;
  for (Sequence* sequence : std::span(waiting_).first(static_cast<size_t>(num_open))) {
    const PlanEntry& entry = waiting_entries_.emplace_back(entry_of(*sequence));
    num_tokens += entry.num_known - entry.num_cached;
    num_pages += (entry.num_known - entry.num_cached) / options_.page_size;
    if (num_tokens >= options_.max_step_tokens || num_pages > cache_.num_available()) break;
  }
  return plan(running_entries_, waiting_entries_,
              {.max_tokens = options_.max_step_tokens,
               .max_batch = options_.max_batch,
               .max_logits = options_.max_step_logits,
               .page_size = options_.page_size,
               .num_available_pages = cache_.num_available()});
}

}  // namespace tessera::engine
