// Reads and checks the lengths, starts and page numbers of an attention call.
// SPDX-License-Identifier: MIT
#include "cpu/attention_sequences.h"

#include <algorithm>
#include <utility>

#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::cpu {
namespace {

constexpr int64_t kUnbounded = int64_t{1}
                               << 40;  // beyond any length; the sum of two does not overflow

int64_t reach_of(int64_t keys) { return keys < 0 ? kUnbounded : std::min(keys, kUnbounded); }

KeyRange band_of(const AttentionArgs& args, int64_t kv_len, int64_t first, int64_t last) {
  return {std::max<int64_t>(0, first - reach_of(args.mask.left)),
          std::min(kv_len, last + reach_of(args.mask.right) + 1)};
}

KeyRange cut(KeyRange a, KeyRange b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

// The union of two ranges, without duplicates.
SeenKeys united(KeyRange a, KeyRange b) {
  if (b.is_empty()) return {a, {}};
  if (a.is_empty()) return {b, {}};
  if (b.begin < a.begin) std::swap(a, b);
  if (b.begin <= a.end) return {KeyRange{a.begin, std::max(a.end, b.end)}, {}};
  return {a, b};
}

void check_starts(std::string_view op, std::string_view name, const TensorView& starts,
                  std::string_view of, int64_t tokens) {
  const int32_t* start = starts.as<int32_t>();
  const int64_t last = starts.size(0) - 1;
  if (start[0] != 0) fail(concat(op, ": ", name, "[0] is ", start[0], "; it must be 0"));
  for (int64_t s = 0; s < last; ++s) {
    if (start[s + 1] >= start[s]) continue;
    fail(concat(op, ": ", name, "[", s + 1, "] is ", start[s + 1], " after ", start[s],
                "; the starts must ascend"));
  }
  if (start[last] == tokens) return;
  fail(concat(op, ": ", name, "[", last, "] is ", start[last], " and ", of, " has ", tokens,
              " tokens; the last start must be their number"));
}

void check_length(const AttentionArgs& args, const AttentionNames& names, int64_t s) {
  const int64_t length = args.kv_lens.as<int32_t>()[s];
  if (is_paged(args)) {
    const int64_t page_size = args.k.size(1), max_pages = args.k_page_table.size(1);
    if (length >= 0 && length <= max_pages * page_size) return;
    fail(concat(names.op, ": ", names.kv_lens, "[", s, "] is ", length, "; a row of ",
                names.k_page_table, " holds ", max_pages, " pages of ", page_size,
                " tokens, so it may be 0 to ", max_pages * page_size));
  }
  if (length >= 0 && length <= args.k.size(1)) return;
  fail(concat(names.op, ": ", names.kv_lens, "[", s, "] is ", length, "; k has ", args.k.size(1),
              " tokens a sequence, so it may be 0 to ", args.k.size(1)));
}

// The pages of one table that hold these keys.
void check_pages(const AttentionNames& names, std::string_view table_name, const TensorView& table,
                 std::string_view pool_name, int64_t num_pages, int64_t page_size,
                 const AttentionSequence& sequence, KeyRange keys) {
  if (keys.is_empty()) return;
  const int32_t* pages = table.as<int32_t>() + sequence.index * table.stride(0);
  for (int64_t i = keys.begin / page_size; i <= (keys.end - 1) / page_size; ++i) {
    if (pages[i] >= 0 && pages[i] < num_pages) continue;
    fail(concat(names.op, ": ", table_name, "[", sequence.index, ", ", i, "] is ", pages[i], "; ",
                pool_name, " has ", num_pages, " pages, and ", names.kv_lens, "[", sequence.index,
                "] of ", sequence.kv_len, " needs this one"));
  }
}

void check_pages(const AttentionArgs& args, const AttentionNames& names,
                 const AttentionSequence& sequence, KeyRange keys) {
  const int64_t page_size = args.k.size(1);
  check_pages(names, names.k_page_table, args.k_page_table, names.k, args.k.size(0), page_size,
              sequence, keys);
  if (args.v_page_table.rank != 2) return;
  check_pages(names, "v_page_table", args.v_page_table, "v", args.v.size(0), page_size, sequence,
              keys);
}

}  // namespace

AttentionSequence sequence_of(const AttentionArgs& args, int64_t s) {
  AttentionSequence sequence{
      .index = s, .q_begin = 0, .q_len = args.q.size(-3), .kv_begin = 0, .kv_len = args.k.size(-3)};
  if (is_ragged(args)) {
    const int32_t* starts = args.q_starts.as<int32_t>();
    sequence.q_begin = starts[s];
    sequence.q_len = starts[s + 1] - starts[s];
  }
  if (args.kv_starts.rank == 1) {
    const int32_t* starts = args.kv_starts.as<int32_t>();
    sequence.kv_begin = starts[s];
    sequence.kv_len = starts[s + 1] - starts[s];
  }
  if (args.kv_lens.rank == 1) sequence.kv_len = args.kv_lens.as<int32_t>()[s];
  return sequence;
}

SeenKeys seen_keys(const AttentionArgs& args, const AttentionSequence& sequence, int64_t i) {
  const int64_t position = sequence.position(i);
  const KeyRange band = band_of(args, sequence.kv_len, position, position);
  const TensorView& intervals = args.mask.intervals;
  if (intervals.rank == 0) return {band, {}};
  const int32_t* ends = intervals.as<int32_t>() + (sequence.q_begin + i) * intervals.stride(-3);
  if (intervals.rank == 4) ends += sequence.index * intervals.stride(0);
  const KeyRange first = cut({ends[0], ends[1]}, band);
  if (intervals.size(-2) == 1) return {first, {}};
  return united(first, cut({ends[2], ends[3]}, band));
}

KeyRange band_hull(const AttentionArgs& args, const AttentionSequence& sequence) {
  if (sequence.q_len == 0) return {};
  return band_of(args, sequence.kv_len, sequence.position(0),
                 sequence.position(sequence.q_len - 1));
}

void check_sequences(const AttentionArgs& args, const AttentionNames& names) {
  if (is_ragged(args)) check_starts(names.op, "q_starts", args.q_starts, "q", args.q.size(0));
  if (args.kv_starts.rank == 1) {
    check_starts(names.op, "kv_starts", args.kv_starts, "k", args.k.size(0));
  }
  const int64_t batch = batch_of(args);
  if (args.kv_lens.rank == 1) {
    for (int64_t s = 0; s < batch; ++s) check_length(args, names, s);
  }
  if (!is_paged(args)) return;
  for (int64_t s = 0; s < batch; ++s) {
    const AttentionSequence sequence = sequence_of(args, s);
    if (args.mask.intervals.rank == 0) {
      check_pages(args, names, sequence, band_hull(args, sequence));
      continue;
    }
    for (int64_t i = 0; i < sequence.q_len; ++i) {
      for (KeyRange keys : seen_keys(args, sequence, i)) check_pages(args, names, sequence, keys);
    }
  }
}

}  // namespace tessera::cpu
