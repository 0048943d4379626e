// The second call of a step: pages moved as planned, the batch assembled, the model run.
// SPDX-License-Identifier: MIT
#include <algorithm>

#include "engine/engine_impl.h"
#include "tessera/core/error.h"

namespace tessera::engine {

void EngineImpl::preempt(Sequence& sequence) {
  release_pages(sequence);
  std::erase(running_, &sequence);
  enqueue(sequence);
  ++counters_.num_preemptions;
}

void EngineImpl::start(Sequence& sequence, int64_t num_cached) {
  ActiveRequest& active = *sequence.request;
  std::erase(waiting_, &sequence);
  running_.push_back(&sequence);
  sequence.is_running = true;
  if (may_read_cache(sequence)) {
    sequence.num_computed =
        cache_.take_prefix(cacheable_tokens(sequence), active.request.cache_salt, sequence.pages);
  }
  expects_equal(sequence.num_computed, num_cached, "engine: tokens of a cached prefix");
  counters_.num_cached_tokens += sequence.num_computed;
  if (!active.was_started) active.num_cached_tokens = sequence.num_computed;
  active.was_started = true;
}

void EngineImpl::add_rows(Sequence& sequence, int64_t num_tokens) {
  if (sequence.beams && !sequence.beams->lists.empty()) {
    for (int32_t beam = 0; beam < std::ssize(sequence.beams->lists); ++beam) {
      rows_.push_back({&sequence, beam, sequence.num_computed, 1, 0, 1});
    }
    return;
  }
  const int64_t end = sequence.num_computed + num_tokens;
  const int64_t first = std::max(sequence.num_computed, first_logit_of(sequence));
  const int64_t num_logits = std::max<int64_t>(0, end - first);
  rows_.push_back({&sequence, -1, sequence.num_computed, num_tokens, 0, num_logits});
}

void EngineImpl::fill_row(BatchRow& row) {
  Sequence& sequence = *row.sequence;
  const bool is_beam = row.beam >= 0;
  cache::PageList& list =
      is_beam ? sequence.beams->lists[static_cast<size_t>(row.beam)] : sequence.pages;
  const int64_t end = row.start + row.num_tokens;
  expects(cache_.grow(list, end, copies_), "engine: the plan promised pages that are not there");

  const auto page_size = options_.page_size;
  for (int64_t position = row.start; position < end; ++position) {
    const int64_t page = list.pages[static_cast<size_t>(position / page_size)];
    host_batch_.slots.push_back(static_cast<int32_t>(page * page_size + position % page_size));
    host_batch_.positions.push_back(static_cast<int32_t>(position));
    host_batch_.tokens.push_back(
        is_beam ? sequence.beams->search.live()[static_cast<size_t>(row.beam)].tokens.back().token
                : sequence.tokens[static_cast<size_t>(position)]);
  }
  const auto num_tokens = static_cast<int32_t>(host_batch_.tokens.size());
  row.first_logit = std::ssize(host_batch_.logit_rows);
  for (int64_t i = row.num_logits; i > 0; --i) {
    host_batch_.logit_rows.push_back(num_tokens - static_cast<int32_t>(i));
  }
  host_batch_.query_starts.push_back(num_tokens);
  host_batch_.seq_lens.push_back(static_cast<int32_t>(end));
  if (list.tail >= 0) host_batch_.tails.push_back(list.tail);
  host_batch_.max_pages = std::max(host_batch_.max_pages, std::ssize(list.pages));
}

void EngineImpl::fill_batch() {
  const auto chunks =
      std::ranges::stable_partition(rows_, [](const BatchRow& row) { return row.is_decode(); });
  host_batch_.clear();
  copies_.clear();
  host_batch_.num_decodes = std::ssize(rows_) - std::ssize(chunks);
  host_batch_.query_starts.push_back(0);
  for (BatchRow& row : rows_) fill_row(row);
  for (const BatchRow& row : rows_) {
    const cache::PageList& list = row.beam >= 0
                                      ? row.sequence->beams->lists[static_cast<size_t>(row.beam)]
                                      : row.sequence->pages;
    auto& table = host_batch_.page_table;
    table.insert(table.end(), list.pages.begin(), list.pages.end());
    table.resize(table.size() + static_cast<size_t>(host_batch_.max_pages) - list.pages.size(), 0);
  }
}

std::span<const float> EngineImpl::run_model() {
  const Context ctx = context();
  copy_pairs_.clear();
  for (const cache::PageCopy& copy : copies_) copy_pairs_.emplace_back(copy.source, copy.target);
  if (!copy_pairs_.empty()) kv_.copy_pages(copy_pairs_, ctx);
  const TensorView logits = model_->forward(buffers_.upload(host_batch_, ctx), kv_, ctx);
  const auto count = static_cast<size_t>(logits.num_elements());
  if (logits.device.is_cpu()) return {logits.as<float>(), count};
  // One wait a step, also where no logits are wanted: the next step writes the same buffers.
  copy_bytes(host_logits_.as<float>(), cpu_device(), logits.data, logits.device,
             count * sizeof(float), ctx.stream);
  synchronize(logits.device, ctx.stream);
  return {host_logits_.as<float>(), count};
}

std::span<const float> EngineImpl::forward(const Plan& plan) {
  enter(StepStage::assemble);
  rows_.clear();
  if (plan.running.empty() && plan.admit.empty() && plan.preempt.empty()) return {};
  // Indices are into the queues as they were planned; these change below.
  planned_running_ = running_;
  planned_waiting_.assign(waiting_.begin(), waiting_.begin() + std::ssize(waiting_entries_));
  const auto at = [](std::vector<Sequence*>& list, int64_t index) -> Sequence& {
    return *list[static_cast<size_t>(index)];
  };
  for (const int64_t index : plan.preempt) preempt(at(planned_running_, index));
  // All prefixes are held before any page is taken, which might evict one of them.
  for (const PlannedChunk& chunk : plan.admit) {
    start(at(planned_waiting_, chunk.entry),
          waiting_entries_[static_cast<size_t>(chunk.entry)].num_cached);
  }
  for (const PlannedChunk& chunk : plan.running) {
    add_rows(at(planned_running_, chunk.entry), chunk.num_tokens);
  }
  for (const PlannedChunk& chunk : plan.admit) {
    add_rows(at(planned_waiting_, chunk.entry), chunk.num_tokens);
  }
  fill_batch();
  ++counters_.num_steps;
  watchdog_.set_batch(std::ssize(rows_), std::ssize(host_batch_.tokens));
  enter(StepStage::forward);
  return run_model();
}

}  // namespace tessera::engine
