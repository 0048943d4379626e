// Which sequences a decode problem has, where their tokens lie, and which keys a query sees.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "bench/problem.h"

namespace tessera::bench {

// The options of a shape; decode.cpp says what they mean.
struct DecodeOptions {
  int64_t batch, q_len, kv_len, heads, kv_heads, d;
  int64_t least;  // keys that each sequence has at least
  int64_t page, pages, shared, window, max_keys, strided, num_tails, head_scales;
  KvFormat k, v;
  std::optional<DType> tail_dtype;  // absent: that of q
  bool has_q_axis, has_lens, has_blocks, has_tree, has_softcap, has_sinks, has_alibi, has_lse;
  bool is_in_place, has_longest, says_shared, has_repeats, is_normal;
  bool chooses_one_key;  // integers: no query gives several keys equal weight

  bool is_paged() const { return page > 0; }
  bool has_keys() const { return max_keys > 0; }
  int64_t group() const { return heads / kv_heads; }
  // Rows of a page; without pages those of a sequence.
  int64_t page_rows() const;
  int64_t max_pages() const;
};
DecodeOptions decode_options(const Shape& shape, Fill fill);

// Lengths, tables, trees and lists, all functions of the options and the seed.
class DecodeLayout {
 public:
  DecodeLayout(const DecodeOptions& options, uint64_t seed);

  int64_t length(int64_t s) const { return lengths_[static_cast<size_t>(s)]; }
  int64_t num_pages() const { return num_pages_; }
  // The page of token t of sequence s.
  int64_t page_of(int64_t s, int64_t t) const;
  // The token whose key and value token t has: itself, or with repeated pages one of the page
  // before.
  int64_t twin_of(int64_t t) const;
  int64_t tail_of(int64_t s) const { return options_.num_tails - 1 - s; }
  // Whether a key of the sequence is read from its tail.
  bool is_in_tail(int64_t s, int64_t t) const;

  uint32_t tree_word(int64_t s, int64_t i) const;
  const std::vector<int32_t>& blocks(int64_t s) const { return blocks_[static_cast<size_t>(s)]; }
  const std::vector<int32_t>& keys(int64_t s, int64_t i) const {
    return keys_[static_cast<size_t>(s * options_.q_len + i)];
  }

  // The keys that query i sees, in ascending order.
  std::vector<int64_t> seen_by(int64_t s, int64_t i) const;
  // Tokens that must exist: those in pages with a key that some query sees. Without pages all.
  std::vector<bool> read_tokens(int64_t s) const;

  double num_pairs() const;  // of a query and a key it sees
  double num_read() const;   // keys that some query sees

 private:
  void make_lengths();
  void make_pages();
  void make_lists();
  bool is_plain() const;  // queries see all keys up to their own
  std::vector<bool> seen_keys(int64_t s) const;

  DecodeOptions options_;
  uint64_t seed_;
  std::vector<int64_t> lengths_;
  std::vector<int64_t> page_order_;
  std::vector<std::vector<int32_t>> blocks_;  // [batch]
  std::vector<std::vector<int32_t>> keys_;    // [batch, q_len]
  int64_t num_pages_ = 0;
};

}  // namespace tessera::bench
