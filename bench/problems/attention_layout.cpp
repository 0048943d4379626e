// Lengths, pages and masks of attention problems.
// SPDX-License-Identifier: MIT
#include "bench/problems/attention_layout.h"

#include <algorithm>
#include <numeric>

#include "bench/problems/builder.h"
#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::bench {
namespace {

constexpr int64_t kSparePages = 3;  // of no sequence
constexpr int64_t kFarBehind = 1000;

// Varying lengths: the first sequence has the full length, the second no query, the third no key.
AttentionSequence varied(const AttentionOptions& o, Random random, int64_t s) {
  AttentionSequence sequence{0, 0, o.q_len, o.kv_len};
  if (s == 0) return sequence;
  if (o.is_ragged && o.q_len > 0) sequence.q_len = random.integer(2 * s, 1, o.q_len);
  if (o.kv_len > 0) sequence.kv_len = random.integer(2 * s + 1, 1, o.kv_len);
  if (s == 1 && o.is_ragged) sequence.q_len = 0;
  if (s == 2) sequence.kv_len = 0;
  return sequence;
}

KeyRange both(KeyRange a, KeyRange b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

int64_t length(KeyRange range) { return std::max<int64_t>(0, range.end - range.begin); }

}  // namespace

AttentionOptions attention_options(const Shape& shape, Fill fill) {
  const auto get = [&](std::string_view name, int64_t otherwise = 0) {
    return value_of(shape, name, otherwise);
  };
  AttentionOptions o{};
  o.batch = get("batch", 1);
  o.q_len = get("q_len");
  o.kv_len = get("kv_len", o.q_len);
  o.heads = get("heads");
  o.kv_heads = get("kv_heads", o.heads);
  o.d = get("d");
  o.dv = get("dv", o.d);
  o.left = get("left", -1);
  o.right = get("right", get("causal") != 0 ? 0 : -1);
  o.intervals = get("intervals");
  o.page = get("page");
  o.pages = get("pages");
  o.strided = get("strided");
  o.is_ragged = get("ragged") != 0;
  o.has_lens = get("lens") != 0;
  o.has_v_table = get("v_table") != 0;
  o.has_softcap = get("softcap") != 0;
  o.has_sinks = get("sinks") != 0;
  o.has_alibi = get("alibi") != 0;
  o.has_lse = get("lse") != 0;
  o.has_dropout = get("dropout") != 0;
  o.has_scales = get("scales") != 0;
  o.has_float_sums = get("float_sums") != 0;
  o.is_in_place = get("in_place") != 0;
  o.is_normal = fill == Fill::normal;
  return o;
}

AttentionLayout::AttentionLayout(const AttentionOptions& options, uint64_t seed)
    : options_(options) {
  const Random random = Random{seed}.stream(1000);
  for (int64_t s = 0; s < options.batch; ++s) {
    AttentionSequence sequence{0, 0, options.q_len, options.kv_len};
    if (options.has_lens) sequence = varied(options, random, s);
    sequence.q_begin = num_tokens_;
    sequence.kv_begin = num_keys_;
    num_tokens_ += sequence.q_len;
    num_keys_ += sequence.kv_len;
    sequences_.push_back(sequence);
  }
  if (!options.is_paged()) return;
  const int64_t num_used = options.batch * options.max_pages();
  num_pages_ = options.pages > 0 ? options.pages : num_used + kSparePages;
  if (num_pages_ < num_used) {
    fail(concat("problem: pages is ", num_pages_, ", the sequences need ", num_used));
  }
  page_order_.resize(static_cast<size_t>(num_pages_));
  std::iota(page_order_.begin(), page_order_.end(), int64_t{0});
  for (int64_t i = num_pages_ - 1; i > 0; --i) {  // Fisher and Yates
    const int64_t other = random.integer(1'000'000 + i, 0, i);
    std::swap(page_order_[static_cast<size_t>(i)], page_order_[static_cast<size_t>(other)]);
  }
}

int64_t AttentionLayout::page_of(int64_t s, int64_t t, bool is_v) const {
  const int64_t place = s * options_.max_pages() + t / options_.page;
  const bool is_turned = is_v && options_.has_v_table;
  return page_order_[static_cast<size_t>(is_turned ? num_pages_ - 1 - place : place)];
}

// 1: causal by intervals alone. 2: documents, the last of which extends beyond the keys. 3: a
// prefix that all queries see, then causal. 4: a question that all queries see, then the answer
// that each belongs to; every ninth query has two overlapping intervals, every seventh none.
KeyRanges AttentionLayout::intervals_of(const AttentionSequence& sequence, int64_t i) const {
  const int64_t p = i + sequence.kv_len - sequence.q_len;
  const int64_t part = std::max<int64_t>(1, sequence.kv_len / 3);
  switch (options_.intervals) {
    case 1: return {KeyRange{0, p + 1}, {}};
    case 2: {
      const int64_t document = std::clamp<int64_t>(p / part, 0, 2);
      return {KeyRange{document * part,
                       document == 2 ? sequence.kv_len + kFarBehind : (document + 1) * part},
              {}};
    }
    case 3: return {KeyRange{-5, std::max(part, p + 1)}, {}};
    case 4: {
      if (i % 7 == 6) return {KeyRange{3, 3}, KeyRange{5, 2}};
      const int64_t question = part / 2;
      if (i % 9 == 8) return {KeyRange{0, p + 1}, KeyRange{0, question}};
      const int64_t answer = question + (p - question) / part * part;
      return {KeyRange{0, question}, KeyRange{std::max(question, answer), p + 1}};
    }
    default: return {KeyRange{0, sequence.kv_len}, {}};
  }
}

KeyRanges AttentionLayout::seen_by(const AttentionSequence& sequence, int64_t i) const {
  const int64_t p = i + sequence.kv_len - sequence.q_len;
  KeyRange bounds{0, sequence.kv_len};
  if (options_.left >= 0) bounds.begin = std::max(bounds.begin, p - options_.left);
  if (options_.right >= 0) bounds.end = std::min(bounds.end, p + options_.right + 1);
  KeyRanges seen = intervals_of(sequence, i);
  for (KeyRange& range : seen) range = both(range, bounds);
  return seen;
}

std::vector<bool> AttentionLayout::seen_keys(const AttentionSequence& sequence) const {
  std::vector<int64_t> change(static_cast<size_t>(sequence.kv_len) + 1);
  for (int64_t i = 0; i < sequence.q_len; ++i) {
    for (const KeyRange& range : seen_by(sequence, i)) {
      if (range.is_empty()) continue;
      ++change[static_cast<size_t>(range.begin)];
      --change[static_cast<size_t>(range.end)];
    }
  }
  std::vector<bool> seen(static_cast<size_t>(sequence.kv_len));
  int64_t num_open = 0;
  for (size_t j = 0; j < seen.size(); ++j) seen[j] = (num_open += change[j]) > 0;
  return seen;
}

double AttentionLayout::num_pairs() const {
  const bool is_half = options_.left < 0 && options_.q_len == options_.kv_len &&
                       !options_.has_lens &&
                       ((options_.right == 0 && options_.intervals == 0) ||
                        (options_.right < 0 && options_.intervals == 1));
  if (is_half) return static_cast<double>(options_.batch * options_.q_len * options_.kv_len) / 2;
  double num_pairs = 0;
  for (const AttentionSequence& sequence : sequences_) {
    for (int64_t i = 0; i < sequence.q_len; ++i) {
      const auto [a, b] = seen_by(sequence, i);
      num_pairs += static_cast<double>(length(a) + length(b) - length(both(a, b)));
    }
  }
  return num_pairs;
}

}  // namespace tessera::bench
