// The sequences of an attention call: where their rows lie, which keys their queries see, and
// whether the lengths, starts and page numbers in the tensors are in range.
// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "tessera/ops/attention.h"

namespace tessera::cpu {

struct KeyRange {
  int64_t begin = 0;
  int64_t end = 0;  // not above begin: empty

  bool is_empty() const { return begin >= end; }
};

// The keys a query sees, as ranges in ascending order that do not overlap; empty ranges are last.
using SeenKeys = std::array<KeyRange, 2>;

struct AttentionSequence {
  int64_t index = 0;    // in the batch
  int64_t q_begin = 0;  // row of q of its first query; 0 if batched
  int64_t q_len = 0;
  int64_t kv_begin = 0;  // row of k of its first key; 0 if batched or paged
  int64_t kv_len = 0;

  // The position of query i among the keys.
  int64_t position(int64_t i) const { return i + kv_len - q_len; }
};

inline bool is_ragged(const AttentionArgs& args) { return args.q.rank == 3; }
inline bool is_paged(const AttentionArgs& args) { return args.k_page_table.rank == 2; }
inline int64_t batch_of(const AttentionArgs& args) {
  return is_ragged(args) ? args.q_starts.size(0) - 1 : args.q.size(0);
}
// The page table of v.
inline const TensorView& v_table_of(const AttentionArgs& args) {
  return args.v_page_table.rank == 2 ? args.v_page_table : args.k_page_table;
}

AttentionSequence sequence_of(const AttentionArgs& args, int64_t s);

// The keys that query i of the sequence sees.
SeenKeys seen_keys(const AttentionArgs& args, const AttentionSequence& sequence, int64_t i);

// The keys that any of its queries sees, for masks without intervals.
KeyRange band_hull(const AttentionArgs& args, const AttentionSequence& sequence);

// Names of tensors in error messages.
struct AttentionNames {
  std::string_view op = "attention_prefill";
  std::string_view k = "k";
  std::string_view kv_lens = "kv_lens";
  std::string_view k_page_table = "k_page_table";
};

// Refuses lengths and starts out of range, and pages out of range that some query sees.
void check_sequences(const AttentionArgs& args, const AttentionNames& names);

}  // namespace tessera::cpu
