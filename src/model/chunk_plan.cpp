// Passes over the chunks of a step, and the page tables of the scratch they read.
// SPDX-License-Identifier: MIT
#include "model/chunk_plan.h"

#include <algorithm>

#include "model/kv_layout.h"

namespace tessera::model {
namespace {

constexpr int64_t kRowPage = 128;  // where nothing asks for smaller pages

int64_t pages_for(int64_t num_rows, int64_t page_size) {
  return (num_rows + page_size - 1) / page_size;
}

int64_t most_chunks(const BatchLimits& limits) { return std::min(limits.batch, limits.tokens); }

int64_t most_parts(const BatchLimits& limits) {
  if (!has_tails(limits.kv_type)) return most_chunks(limits);
  return std::min(limits.tokens, limits.tokens / kKvGroup + 2 * most_chunks(limits));
}

// A chunk of a prompt: tokens [start, end) of its sequence.
struct Chunk {
  int64_t start = 0;
  int64_t end = 0;
  int64_t first_token = 0;  // of the step
};

Chunk chunk_of(const HostBatch& host, int64_t sequence) {
  const auto s = static_cast<size_t>(sequence);
  const int64_t begin = host.query_starts[s], end = host.query_starts[s + 1];
  return {host.seq_lens[s] - (end - begin), host.seq_lens[s], begin};
}

class Planner {
 public:
  Planner(const HostBatch& host, const BatchLimits& limits, ChunkPlan& plan)
      : host_(host),
        sizes_(scratch_sizes(limits)),
        by_column_(has_tails(limits.kv_type)),
        plan_(plan) {}

  void run() {
    plan_.num_passes = 0;
    plan_.tail_lens.clear();
    plan_.exact_starts.clear();
    plan_.exact_slots.assign(by_column_ ? host_.tokens.size() : 0, -1);
    int64_t exact_page = sizes_.num_gathered;
    const auto batch = static_cast<int64_t>(host_.seq_lens.size());
    for (int64_t sequence = host_.num_decodes; sequence < batch; ++sequence) {
      const Chunk chunk = chunk_of(host_, sequence);
      const int64_t num_pages = pages_for(chunk.end, sizes_.page_size);
      if (plan_.num_passes == 0 || next_page_ + num_pages > sizes_.num_gathered) {
        open_pass(sequence, chunk.first_token);
      }
      add(chunk, exact_page);
      next_page_ += num_pages;
    }
  }

 private:
  ChunkPlan::Pass& pass() { return plan_.passes[static_cast<size_t>(plan_.num_passes - 1)]; }

  void open_pass(int64_t sequence, int64_t first_token) {
    ++plan_.num_passes;
    if (plan_.num_passes > std::ssize(plan_.passes)) plan_.passes.emplace_back();
    ChunkPlan::Pass& one = pass();
    one.counts = {.first_sequence = sequence, .first_token = first_token};
    for (auto* list : {&one.gather_starts, &one.kv_lens, &one.k_table, &one.v_table}) list->clear();
    one.q_starts.assign(1, 0);
    one.width = 0;
    // A row of a table is as wide as the longest sequence of the pass.
    int64_t num_pages = 0;
    for (size_t s = static_cast<size_t>(sequence); s < host_.seq_lens.size(); ++s) {
      const int64_t pages = pages_for(host_.seq_lens[s], sizes_.page_size);
      if (num_pages > 0 && num_pages + pages > sizes_.num_gathered) break;
      num_pages += pages;
      one.width = std::max(one.width, pages);
    }
    next_page_ = 0;
  }

  void add(const Chunk& chunk, int64_t& exact_page) {
    ChunkPlan::Pass& one = pass();
    one.counts.num_sequences += 1;
    one.counts.num_tokens += chunk.end - chunk.start;
    one.gather_starts.push_back(static_cast<int32_t>(next_page_ * sizes_.page_size));
    if (!by_column_) return add_part(chunk.end - chunk.start, chunk.end, -1);
    const int64_t first_group = chunk.start / kKvGroup;
    const int64_t first_row = exact_page * kKvGroup;
    plan_.tail_lens.push_back(static_cast<int32_t>(chunk.start % kKvGroup));
    plan_.exact_starts.push_back(static_cast<int32_t>(first_row));
    for (int64_t position = chunk.start; position < chunk.end; ++position) {
      plan_.exact_slots[static_cast<size_t>(chunk.first_token + position - chunk.start)] =
          static_cast<int32_t>(first_row + position - first_group * kKvGroup);
    }
    for (int64_t begin = chunk.start; begin < chunk.end;) {
      const int64_t end = std::min(chunk.end, (begin / kKvGroup + 1) * kKvGroup);
      add_part(end - begin, end, exact_page++);
      begin = end;
    }
  }

  // The newest num_queries of the first num_keys tokens; the last page of its keys is `exact_page`,
  // unless that is negative.
  void add_part(int64_t num_queries, int64_t num_keys, int64_t exact_page) {
    ChunkPlan::Pass& one = pass();
    one.q_starts.push_back(one.q_starts.back() + static_cast<int32_t>(num_queries));
    one.kv_lens.push_back(static_cast<int32_t>(num_keys));
    const int64_t num_pages = pages_for(num_keys, sizes_.page_size);
    for (int64_t i = 0; i < one.width; ++i) {  // what lies beyond the sequence is never read
      const auto page = static_cast<int32_t>(i < num_pages ? next_page_ + i : 0);
      const bool is_exact = exact_page >= 0 && i + 1 == num_pages;
      one.k_table.push_back(is_exact ? static_cast<int32_t>(exact_page) : page);
      one.v_table.push_back(page);
    }
  }

  const HostBatch& host_;
  ScratchSizes sizes_;
  bool by_column_;
  ChunkPlan& plan_;
  int64_t next_page_ = 0;  // of the scratch, in this pass
};

}  // namespace

ScratchSizes scratch_sizes(const BatchLimits& limits) {
  if (limits.kv_type == KvFormat::plain) return {};
  ScratchSizes sizes{.page_size = has_tails(limits.kv_type) ? kKvGroup : kRowPage};
  // The longest context, and room for a step's tokens beside it, so that short ones share a pass.
  sizes.num_gathered =
      pages_for(limits.max_positions, sizes.page_size) + pages_for(limits.tokens, sizes.page_size);
  if (has_tails(limits.kv_type)) sizes.num_exact = most_parts(limits);
  return sizes;
}

int64_t chunk_plan_capacity(const BatchLimits& limits, int64_t alignment) {
  if (limits.kv_type == KvFormat::plain) return 0;
  const int64_t chunks = most_chunks(limits), parts = most_parts(limits);
  const int64_t width = pages_for(limits.max_positions, scratch_sizes(limits).page_size);
  int64_t total = 2 * chunks + 2 * parts + 2 * parts * width;  // starts, lengths and tables
  if (has_tails(limits.kv_type)) total += 2 * chunks + limits.batch + 2 * limits.tokens;
  return total + alignment * (5 * chunks + 5);
}

void plan_chunks(const HostBatch& host, const BatchLimits& limits, ChunkPlan& plan) {
  Planner(host, limits, plan).run();
}

}  // namespace tessera::model
