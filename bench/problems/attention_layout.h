// Which sequences an attention problem has, where their tokens lie, and which keys a query sees.
// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "bench/problem.h"

namespace tessera::bench {

// The options of a shape; attention.cpp says what they mean.
struct AttentionOptions {
  int64_t batch, q_len, kv_len, heads, kv_heads, d, dv;
  int64_t left, right, intervals, page, pages, strided;
  bool is_ragged, has_lens, has_v_table, has_softcap, has_sinks, has_alibi, has_lse, has_dropout;
  bool has_scales, has_float_sums, is_in_place, is_normal;

  bool is_paged() const { return page > 0; }
  // Rows of k and v that a sequence has room for, unless ragged.
  int64_t max_pages() const { return (kv_len + page - 1) / page; }
};
AttentionOptions attention_options(const Shape& shape, Fill fill);

// The keys [begin, end).
struct KeyRange {
  int64_t begin, end;

  bool is_empty() const { return begin >= end; }
};
using KeyRanges = std::array<KeyRange, 2>;  // may overlap; with one interval the second is empty

struct AttentionSequence {
  int64_t q_begin;   // its first row in ragged tensors
  int64_t kv_begin;  // likewise
  int64_t q_len;
  int64_t kv_len;
};

// Lengths, tables and masks, all functions of the options and the seed.
class AttentionLayout {
 public:
  AttentionLayout(const AttentionOptions& options, uint64_t seed);

  const std::vector<AttentionSequence>& sequences() const { return sequences_; }
  int64_t num_tokens() const { return num_tokens_; }  // of q
  int64_t num_keys() const { return num_keys_; }      // of all sequences
  int64_t num_pages() const { return num_pages_; }
  // The page of token `t` of sequence `s`, in the table of k or, in reverse order, of v.
  int64_t page_of(int64_t s, int64_t t, bool is_v) const;

  int64_t num_intervals() const { return options_.intervals == 4 ? 2 : 1; }
  // The intervals of query i as given; they may extend beyond the sequence.
  KeyRanges intervals_of(const AttentionSequence& sequence, int64_t i) const;
  // The keys that query i sees.
  KeyRanges seen_by(const AttentionSequence& sequence, int64_t i) const;
  // Whether some query sees key j, for all keys of a sequence.
  std::vector<bool> seen_keys(const AttentionSequence& sequence) const;

  // Pairs of a query and a key it sees. A causal square counts as half, as is usual in the field.
  double num_pairs() const;

 private:
  AttentionOptions options_;
  std::vector<AttentionSequence> sequences_;
  std::vector<int64_t> page_order_;
  int64_t num_tokens_ = 0;
  int64_t num_keys_ = 0;
  int64_t num_pages_ = 0;
};

}  // namespace tessera::bench
