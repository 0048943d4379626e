// Batches from the host to the device: checked, laid out by size class, and copied in one go.
// SPDX-License-Identifier: MIT
#include "model/batch.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

#include "core/text.h"
#include "model/chunk_plan.h"
#include "model/kv_layout.h"
#include "tessera/core/error.h"

namespace tessera::model {
namespace {

// Parts begin on cache lines.
constexpr int64_t kArrayAlignment = 16;

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

constexpr int64_t align_up(int64_t count) {
  return (count + kArrayAlignment - 1) / kArrayAlignment * kArrayAlignment;
}

int64_t capacity(const BatchLimits& limits) {
  int64_t total = 3 * align_up(limits.tokens) + align_up(limits.batch);
  total += align_up(limits.batch * limits.max_pages) + 2 * align_up(limits.batch + 1);
  return total + align_up(limits.logits) + chunk_plan_capacity(limits, kArrayAlignment);
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

int64_t longest_decode(const HostBatch& host) {
  const auto decodes = std::span(host.seq_lens).first(static_cast<size_t>(host.num_decodes));
  return decodes.empty() ? 0 : *std::ranges::max_element(decodes);
}

void check_padded(const HostBatch& host) {
  const auto batch = std::ssize(host.seq_lens);
  if (batch > 0 && host.num_decodes == batch && std::ssize(host.logit_rows) <= batch) return;
  fail(concat("Batch: ", host.num_decodes, " of ", batch, " sequences are decodes and ",
              host.logit_rows.size(), " rows of logits are wanted; only decodes with at most one ",
              "row each are padded"));
}

// Table rows get wider by powers of two: a sequence that grows changes class once per doubling, and
// at most twice the entries in use are copied.
SizeClass class_of(const HostBatch& host, const BatchLimits& limits) {
  const auto width = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(host.max_pages)));
  return {.tokens = round_up_to_class(std::ssize(host.tokens), limits.tokens),
          .batch = round_up_to_class(std::ssize(host.seq_lens), limits.batch),
          .table_width = std::min(width, limits.max_pages)};
}

}  // namespace

int64_t round_up_to_class(int64_t count, int64_t limit) {
  if (count <= 8) return std::min(count, limit);
  const auto unit = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(count - 1)) / 4);
  return std::min((count + unit - 1) / unit * unit, limit);
}

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
  for (HostBuffer& staging : staging_) {
    staging = HostBuffer(device, static_cast<size_t>(memory_.size_bytes()));
    // Gaps between parts are copied too, so they must hold defined values.
    std::fill_n(staging.as<int32_t>(), capacity(limits), 0);
  }
}

TensorView BatchBuffers::stage(std::span<const int32_t> values, int64_t room,
                               std::initializer_list<int64_t> shape) {
  std::ranges::copy(values, staged_ + used_);
  void* data = memory_.view().as<int32_t>() + used_;
  used_ += align_up(room);
  return TensorView::contiguous(data, DType::i32, shape, memory_.view().device);
}

TensorView BatchBuffers::stage_list(const std::vector<int32_t>& values, int64_t room) {
  return stage(values, room, {static_cast<int64_t>(values.size())});
}

TensorView BatchBuffers::stage_padded(const std::vector<int32_t>& values, int64_t room,
                                      int32_t rest) {
  if (!is_padded_) return stage_list(values, room);
  std::fill_n(staged_ + used_, room, rest);
  return stage(values, room, {room});
}

TensorView BatchBuffers::stage_table(const HostBatch& host, const SizeClass& size) {
  const auto batch = static_cast<int64_t>(host.seq_lens.size());
  int32_t* rows = staged_ + used_;
  for (int64_t s = 0; s < batch; ++s) {
    std::copy_n(host.page_table.data() + s * host.max_pages, host.max_pages,
                rows + s * size.table_width);
  }
  if (is_padded_) {
    // Entries beyond a sequence are not read, but must be page numbers.
    for (int64_t s = 0; s < size.batch; ++s) {
      const int64_t used = s < batch ? host.max_pages : 0;
      std::fill(rows + s * size.table_width + used, rows + (s + 1) * size.table_width, 0);
    }
    return stage({}, size.batch * size.table_width, {size.batch, size.table_width});
  }
  TensorView table = stage({}, size.batch * size.table_width, {batch, host.max_pages});
  table.strides[0] = size.table_width;
  return table;
}

void BatchBuffers::stage_chunk_starts(const HostBatch& host, Batch& batch) {
  const auto first = static_cast<size_t>(host.num_decodes);
  const auto starts = std::span<const int32_t>(host.query_starts).subspan(first);
  int32_t* staged = staged_ + used_;
  batch.chunk_starts =
      stage(starts, batch.size_class.batch + 1, {static_cast<int64_t>(starts.size())});
  for (size_t i = 0; i < starts.size(); ++i) staged[i] -= static_cast<int32_t>(host.num_decodes);
}

void BatchBuffers::stage_tails(const HostBatch& host, Batch& batch) {
  const SizeClass& size = batch.size_class;
  const int64_t most_chunks = std::min(size.batch, size.tokens);
  batch.tails = stage_padded(host.tails, size.batch, 0);
  batch.tail_lens = stage_list(plan_.tail_lens, most_chunks);
  batch.exact_starts = stage_list(plan_.exact_starts, most_chunks);
  batch.exact_slots = stage_padded(plan_.exact_slots, size.tokens, -1);
  int32_t* slots = staged_ + used_;
  batch.tail_slots = stage_padded(host.positions, size.tokens, -1);
  for (size_t s = 0; s < host.tails.size(); ++s) {
    for (int32_t token = host.query_starts[s]; token < host.query_starts[s + 1]; ++token) {
      slots[token] = static_cast<int32_t>(host.tails[s] * kKvGroup + slots[token] % kKvGroup);
    }
  }
}

// Packed behind the fixed parts: steps with chunks over a quantised cache are not captured.
void BatchBuffers::stage_passes(Batch& batch) {
  const auto packed = [&](const std::vector<int32_t>& values) {
    return stage_list(values, static_cast<int64_t>(values.size()));
  };
  const auto packed_table = [&](const std::vector<int32_t>& values, int64_t num_rows,
                                int64_t width) {
    return stage(values, num_rows * width, {num_rows, width});
  };
  passes_.clear();
  for (const ChunkPlan::Pass& pass :
       std::span(plan_.passes).first(static_cast<size_t>(plan_.num_passes))) {
    ChunkPass& made = passes_.emplace_back(pass.counts);
    const auto num_parts = static_cast<int64_t>(pass.kv_lens.size());
    made.gather_starts = packed(pass.gather_starts);
    made.q_starts = packed(pass.q_starts);
    made.kv_lens = packed(pass.kv_lens);
    made.k_table = packed_table(pass.k_table, num_parts, pass.width);
    made.v_table = packed_table(pass.v_table, num_parts, pass.width);
  }
  batch.passes = passes_;
}

// Prefixes are shared from the first page on, and drafts have all pages of their sequence.
void BatchBuffers::find_shared_pages(const HostBatch& host, Batch& batch) {
  if (host.max_pages == 0) return;
  const auto pages_of = [&](int64_t s) {
    return std::span(host.page_table)
        .subspan(static_cast<size_t>(s * host.max_pages), static_cast<size_t>(host.max_pages));
  };
  const auto shares = [&](int64_t s, int64_t t) { return pages_of(s)[0] == pages_of(t)[0]; };
  const auto is_same = [&](int64_t s, int64_t t) {
    return std::ranges::equal(pages_of(s), pages_of(t));
  };
  by_pages_.resize(static_cast<size_t>(host.num_decodes));
  std::iota(by_pages_.begin(), by_pages_.end(), 0);
  std::ranges::sort(by_pages_, [&](int64_t s, int64_t t) {
    return std::ranges::lexicographical_compare(pages_of(s), pages_of(t));
  });
  batch.shares_pages = std::ranges::adjacent_find(by_pages_, shares) != by_pages_.end();
  batch.has_drafts = std::ranges::adjacent_find(by_pages_, is_same) != by_pages_.end();
}

Batch BatchBuffers::upload(const HostBatch& host, const Context& ctx, Padding padding) {
  check_host(host, limits_);
  is_padded_ = padding == Padding::to_class;
  if (is_padded_) check_padded(host);
  const HostBuffer& staging = staging_[num_uploads_++ % 2];
  staged_ = staging.as<int32_t>();
  used_ = 0;
  Batch batch;
  batch.size_class = class_of(host, limits_);
  const SizeClass& size = batch.size_class;
  if (!host.positions.empty()) {
    batch.num_positions = int64_t{*std::ranges::max_element(host.positions)} + 1;
  }
  batch.num_decodes = is_padded_ ? size.batch : host.num_decodes;
  batch.longest_decode = longest_decode(host);
  if (is_padded_) batch.longest_decode = round_up_to_class(batch.longest_decode, kNoLimit);
  find_shared_pages(host, batch);
  batch.tokens = stage_padded(host.tokens, size.tokens, 0);
  batch.positions = stage_padded(host.positions, size.tokens, 0);
  batch.slots = stage_padded(host.slots, size.tokens, -1);
  batch.seq_lens = stage_padded(host.seq_lens, size.batch, 0);
  // Decodes have one token each, so that the starts of padded ones continue the count.
  int32_t* const starts = staged_ + used_;
  batch.query_starts = stage_padded(host.query_starts, size.batch + 1, 0);
  if (is_padded_) std::iota(starts, starts + size.batch + 1, 0);
  stage_chunk_starts(host, batch);
  const int64_t num_logits =
      is_padded_ ? std::min(size.tokens, limits_.logits) : std::ssize(host.logit_rows);
  std::fill_n(staged_ + used_, num_logits, 0);
  batch.logit_rows = stage(host.logit_rows, limits_.logits, {num_logits});
  if (limits_.kv_type != KvFormat::plain) plan_chunks(host, limits_, plan_);
  if (has_tails(limits_.kv_type)) stage_tails(host, batch);
  batch.page_table = stage_table(host, size);
  if (limits_.kv_type != KvFormat::plain) stage_passes(batch);
  copy_bytes(memory_.view().data, memory_.view().device, staging.as<int32_t>(), cpu_device(),
             static_cast<size_t>(used_) * sizeof(int32_t), ctx.stream);
  return batch;
}

}  // namespace tessera::model
