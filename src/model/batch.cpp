// Batches from the host to the device: checked, packed, and copied in one go.
// SPDX-License-Identifier: MIT
#include "model/batch.h"

#include <algorithm>

#include "core/text.h"
#include "model/chunk_plan.h"
#include "model/kv_layout.h"
#include "tessera/core/error.h"

namespace tessera::model {
namespace {

// Parts begin on cache lines.
constexpr int64_t kAlignment = 16;

constexpr int64_t align_up(int64_t count) {
  return (count + kAlignment - 1) / kAlignment * kAlignment;
}

int64_t capacity(const BatchLimits& limits) {
  int64_t total = 3 * align_up(limits.tokens) + align_up(limits.batch);
  total += align_up(limits.batch * limits.max_pages) + 2 * align_up(limits.batch + 1);
  return total + align_up(limits.logits) + chunk_plan_capacity(limits, kAlignment);
}

void check_limits(const BatchLimits& limits) {
  if (limits.tokens < 1 || limits.batch < 1 || limits.max_pages < 1 || limits.logits < 0) {
    fail(concat("BatchBuffers: limits are tokens ", limits.tokens, ", batch ", limits.batch,
                ", max_pages ", limits.max_pages, ", logits ", limits.logits,
                "; all but logits must be at least 1"));
  }
  if (limits.kv_type != KvFormat::plain && limits.max_positions < 1) {
    fail(concat("BatchBuffers: limits are kv_type ", name(limits.kv_type), ", max_positions ",
                limits.max_positions, "; say how long a sequence may be"));
  }
}

void check_limit(std::string_view what, size_t count, int64_t limit) {
  if (static_cast<int64_t>(count) <= limit) return;
  fail(concat("Batch: ", what, " is ", count, " and the limit ", limit, "; plan a smaller step"));
}

void check_count(std::string_view what, size_t count, size_t want) {
  if (count != want) fail(concat("Batch: ", what, " has ", count, " entries; it must have ", want));
}

void check_rows(const HostBatch& host) {
  const auto num_tokens = static_cast<int32_t>(host.tokens.size());
  const std::vector<int32_t>& starts = host.query_starts;
  if (starts.front() != 0 || starts.back() != num_tokens || !std::ranges::is_sorted(starts)) {
    fail(concat("Batch: query_starts goes from ", starts.front(), " to ", starts.back(),
                "; it must ascend from 0 to ", num_tokens, ", the number of tokens"));
  }
  const int64_t num_decodes = host.num_decodes;
  if (num_decodes < 0 || num_decodes >= static_cast<int64_t>(starts.size()) ||
      starts[static_cast<size_t>(num_decodes)] != num_decodes) {
    fail(concat("Batch: num_decodes is ", num_decodes,
                "; the first num_decodes sequences must have one token each"));
  }
  for (size_t s = 0; s < host.seq_lens.size(); ++s) {
    if (host.seq_lens[s] >= starts[s + 1] - starts[s]) continue;
    fail(concat("Batch: seq_lens[", s, "] is ", host.seq_lens[s], " and the step has ",
                starts[s + 1] - starts[s], " tokens of it"));
  }
  for (const int32_t row : host.logit_rows) {
    if (row >= 0 && row < num_tokens) continue;
    fail(concat("Batch: logit_rows has ", row, "; the step has ", num_tokens, " tokens"));
  }
}

void check_host(const HostBatch& host, const BatchLimits& limits) {
  check_limit("num_tokens", host.tokens.size(), limits.tokens);
  check_limit("batch", host.seq_lens.size(), limits.batch);
  check_limit("num_logits", host.logit_rows.size(), limits.logits);
  if (host.max_pages < 0) fail(concat("Batch: max_pages is ", host.max_pages));
  check_limit("max_pages", static_cast<size_t>(host.max_pages), limits.max_pages);
  check_count("positions", host.positions.size(), host.tokens.size());
  check_count("slots", host.slots.size(), host.tokens.size());
  check_count("query_starts", host.query_starts.size(), host.seq_lens.size() + 1);
  check_count("page_table", host.page_table.size(),
              host.seq_lens.size() * static_cast<size_t>(host.max_pages));
  check_rows(host);
  if (limits.kv_type == KvFormat::plain) return;
  for (const int32_t seq_len : host.seq_lens) {
    check_limit("seq_lens", static_cast<size_t>(seq_len), limits.max_positions);
  }
  check_count("tails", host.tails.size(), has_tails(limits.kv_type) ? host.seq_lens.size() : 0);
}

}  // namespace

void HostBatch::clear() {
  for (std::vector<int32_t>* values :
       {&tokens, &positions, &slots, &page_table, &seq_lens, &query_starts, &logit_rows, &tails}) {
    values->clear();
  }
  max_pages = 0;
  num_decodes = 0;
}

int64_t batch_bytes(const BatchLimits& limits) {
  return storage_bytes(DType::i32, capacity(limits));
}

BatchBuffers::BatchBuffers(const BatchLimits& limits, Device device) : limits_(limits) {
  check_limits(limits);
  memory_ = Tensor(DType::i32, {capacity(limits)}, device);
  staging_ = HostBuffer(device, static_cast<size_t>(memory_.size_bytes()));
}

TensorView BatchBuffers::stage(std::span<const int32_t> values,
                               std::initializer_list<int64_t> shape) {
  std::ranges::copy(values, staging_.as<int32_t>() + used_);
  void* data = memory_.view().as<int32_t>() + used_;
  used_ += align_up(static_cast<int64_t>(values.size()));
  return TensorView::contiguous(data, DType::i32, shape, memory_.view().device);
}

void BatchBuffers::stage_chunks(const HostBatch& host, Batch& batch) {
  const auto list = [&](const std::vector<int32_t>& values) {
    return stage(values, {static_cast<int64_t>(values.size())});
  };
  plan_chunks(host, limits_, plan_);
  passes_.clear();
  for (const ChunkPlan::Pass& pass :
       std::span(plan_.passes).first(static_cast<size_t>(plan_.num_passes))) {
    ChunkPass& made = passes_.emplace_back(pass.counts);
    const auto num_parts = static_cast<int64_t>(pass.kv_lens.size());
    made.gather_starts = list(pass.gather_starts);
    made.q_starts = list(pass.q_starts);
    made.kv_lens = list(pass.kv_lens);
    made.k_table = stage(pass.k_table, {num_parts, pass.width});
    made.v_table = stage(pass.v_table, {num_parts, pass.width});
  }
  batch.passes = passes_;
  if (!has_tails(limits_.kv_type)) return;
  batch.tails = list(host.tails);
  batch.tail_lens = list(plan_.tail_lens);
  batch.exact_starts = list(plan_.exact_starts);
  batch.exact_slots = list(plan_.exact_slots);
  const int64_t begin = used_;
  batch.tail_slots = list(host.positions);
  for (size_t s = 0; s < host.tails.size(); ++s) {
    for (int32_t token = host.query_starts[s]; token < host.query_starts[s + 1]; ++token) {
      int32_t& slot = staging_.as<int32_t>()[begin + token];
      slot = static_cast<int32_t>(host.tails[s] * kKvGroup + slot % kKvGroup);
    }
  }
}

// Prefixes are shared from the first page on.
bool BatchBuffers::do_decodes_share(const HostBatch& host) {
  first_pages_.clear();
  for (int64_t s = 0; s < host.num_decodes && host.max_pages > 0; ++s) {
    first_pages_.push_back(host.page_table[static_cast<size_t>(s * host.max_pages)]);
  }
  std::ranges::sort(first_pages_);
  return std::ranges::adjacent_find(first_pages_) != first_pages_.end();
}

Batch BatchBuffers::upload(const HostBatch& host, const Context& ctx) {
  check_host(host, limits_);
  const auto num_tokens = static_cast<int64_t>(host.tokens.size());
  const auto batch_size = static_cast<int64_t>(host.seq_lens.size());
  const int64_t num_chunks = batch_size - host.num_decodes;
  used_ = 0;
  Batch batch;
  if (num_tokens > 0) batch.num_positions = int64_t{*std::ranges::max_element(host.positions)} + 1;
  batch.num_decodes = host.num_decodes;
  const auto decodes = std::span(host.seq_lens).first(static_cast<size_t>(host.num_decodes));
  if (!decodes.empty()) batch.longest_decode = *std::max_element(decodes.begin(), decodes.end());
  batch.shares_pages = do_decodes_share(host);
  batch.tokens = stage(host.tokens, {num_tokens});
  batch.positions = stage(host.positions, {num_tokens});
  batch.slots = stage(host.slots, {num_tokens});
  batch.page_table = stage(host.page_table, {batch_size, host.max_pages});
  batch.seq_lens = stage(host.seq_lens, {batch_size});
  batch.query_starts = stage(host.query_starts, {batch_size + 1});
  const std::span<const int32_t> starts(host.query_starts);
  const int64_t chunk_begin = used_;
  batch.chunk_starts =
      stage(starts.subspan(static_cast<size_t>(host.num_decodes)), {num_chunks + 1});
  for (int64_t i = 0; i <= num_chunks; ++i) {
    staging_.as<int32_t>()[chunk_begin + i] -= static_cast<int32_t>(host.num_decodes);
  }
  batch.logit_rows = stage(host.logit_rows, {static_cast<int64_t>(host.logit_rows.size())});
  if (limits_.kv_type != KvFormat::plain) stage_chunks(host, batch);
  copy_bytes(memory_.view().data, memory_.view().device, staging_.as<int32_t>(), cpu_device(),
             static_cast<size_t>(used_) * sizeof(int32_t), ctx.stream);
  return batch;
}

}  // namespace tessera::model
