// Lengths, pages, trees and lists of decode problems.
// SPDX-License-Identifier: MIT
#include "bench/problems/decode_layout.h"

#include <algorithm>
#include <numeric>

#include "bench/problems/builder.h"
#include "core/text.h"
#include "tessera/core/error.h"
#include "tessera/ops/kv_cache.h"

namespace tessera::bench {
namespace {

constexpr int64_t kSparePages = 3;  // of no sequence

// 0 to count - 1 in random order.
std::vector<int64_t> shuffled(int64_t count, Random random) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), int64_t{0});
  for (int64_t i = count - 1; i > 0; --i) {  // Fisher and Yates
    const int64_t other = random.integer(i, 0, i);
    std::swap(order[static_cast<size_t>(i)], order[static_cast<size_t>(other)]);
  }
  return order;
}

// The first `count` of them.
std::vector<int32_t> drawn(int64_t count, int64_t of, Random random) {
  const std::vector<int64_t> order = shuffled(of, random);
  return {order.begin(), order.begin() + std::min(count, of)};
}

}  // namespace

int64_t DecodeOptions::page_rows() const {
  if (is_paged()) return page;
  // Columns share a scale over whole groups of tokens.
  return traits(k).has_tail() ? (kv_len + kKvGroup - 1) / kKvGroup * kKvGroup : kv_len;
}

int64_t DecodeOptions::max_pages() const {
  return is_paged() ? (kv_len + page - 1) / page : int64_t{1};
}

DecodeOptions decode_options(const Shape& shape, Fill fill) {
  const auto get = [&](std::string_view name, int64_t otherwise = 0) {
    return value_of(shape, name, otherwise);
  };
  DecodeOptions o{};
  o.batch = get("batch", 1);
  o.q_len = get("q_len", 1);
  o.kv_len = get("kv_len");
  o.heads = get("heads");
  o.kv_heads = get("kv_heads", o.heads);
  o.d = get("d");
  o.page = get("page");
  o.pages = get("pages");
  o.shared = get("shared");
  o.window = get("window");
  o.max_keys = get("keys");
  o.strided = get("strided");
  o.num_tails = get("tails", 8);
  o.head_scales = get("head_scales");
  o.k = static_cast<KvFormat>(get("k_format"));
  o.v = static_cast<KvFormat>(get("v_format", option(traits(o.k).values)));
  if (const int64_t dtype = get("tail_dtype", -1); dtype >= 0) {
    o.tail_dtype = static_cast<DType>(dtype);
  }
  o.has_q_axis = get("q_len") != 0;
  o.has_lens = get("lens") != 0;
  o.has_blocks = get("blocks") != 0;
  o.has_tree = get("tree") != 0;
  o.has_softcap = get("softcap") != 0;
  o.has_sinks = get("sinks") != 0;
  o.has_alibi = get("alibi") != 0;
  o.has_lse = get("lse") != 0;
  o.is_in_place = get("in_place") != 0;
  o.has_longest = get("longest") != 0;
  o.says_shared = get("says_shared") != 0;
  o.has_repeats = get("repeats") != 0;
  o.is_normal = fill == Fill::normal;
  o.chooses_one_key = o.has_alibi || o.has_repeats;
  if (o.is_paged()) o.shared = std::min(o.shared, o.max_pages());
  if (traits(o.v).has_tail()) {
    fail(concat("problem: v_format is ", name(o.v), "; only keys have scales by column"));
  }
  if (traits(o.k).has_tail() && o.num_tails < o.batch) {
    fail(concat("problem: tails is ", o.num_tails, ", the sequences need ", o.batch));
  }
  return o;
}

DecodeLayout::DecodeLayout(const DecodeOptions& options, uint64_t seed)
    : options_(options), seed_(seed) {
  make_lengths();
  make_pages();
  make_lists();
}

// Varying lengths: full, none, those around a page (or 16 keys), the least, then random.
void DecodeLayout::make_lengths() {
  const Random random = Random{seed_}.stream(1000);
  const DecodeOptions& o = options_;
  const int64_t page = o.is_paged() ? o.page : int64_t{16};
  for (int64_t s = 0; s < o.batch; ++s) {
    int64_t length = o.kv_len;
    if (o.has_lens && s > 0) {
      const int64_t some[] = {0, page + 1, page - 1, page, o.q_len};
      length = s < 6 ? some[s - 1] : random.integer(s, o.q_len, o.kv_len);
      if (s > 1) length = std::clamp(length, o.q_len, o.kv_len);
      length = std::max(length, o.least);
    }
    lengths_.push_back(length);
  }
}

void DecodeLayout::make_pages() {
  const DecodeOptions& o = options_;
  if (!o.is_paged()) {
    num_pages_ = o.batch;
    return;
  }
  const int64_t num_used = o.shared + o.batch * (o.max_pages() - o.shared);
  num_pages_ = o.pages > 0 ? o.pages : num_used + kSparePages;
  if (num_pages_ < num_used) {
    fail(concat("problem: pages is ", num_pages_, ", the sequences need ", num_used));
  }
  page_order_ = shuffled(num_pages_, Random{seed_}.stream(1001));
}

// Lists about half of a sequence's blocks, for the fourth sequence none; and up to max_keys keys,
// for every fifth query none.
void DecodeLayout::make_lists() {
  const DecodeOptions& o = options_;
  const Random random = Random{seed_}.stream(1002);
  for (int64_t s = 0; o.has_blocks && s < o.batch; ++s) {
    const int64_t num_blocks = (length(s) + o.page_rows() - 1) / o.page_rows();
    const int64_t count = s == 3 ? 0 : (num_blocks + 1) / 2;
    blocks_.push_back(drawn(count, num_blocks, random.stream(static_cast<uint64_t>(s))));
  }
  for (int64_t i = 0; o.has_keys() && i < o.batch * o.q_len; ++i) {
    const int64_t count = i % 5 == 4 ? 0 : random.integer(i, 1, o.max_keys);
    const Random its = random.stream(1000 + static_cast<uint64_t>(i));
    keys_.push_back(drawn(count, length(i / o.q_len), its));
  }
}

int64_t DecodeLayout::twin_of(int64_t t) const {
  return options_.has_repeats && t / options_.page % 2 != 0 ? t - options_.page : t;
}

// Sequences share the first pages if the shape says so.
int64_t DecodeLayout::page_of(int64_t s, int64_t t) const {
  if (!options_.is_paged()) return s;
  const int64_t block = twin_of(t) / options_.page;
  const int64_t own = block < options_.shared ? 0 : s * (options_.max_pages() - options_.shared);
  return page_order_[static_cast<size_t>(own + block)];
}

bool DecodeLayout::is_in_tail(int64_t s, int64_t t) const {
  return traits(options_.k).has_tail() && t / kKvGroup == (length(s) - 1) / kKvGroup;
}

// A token sees itself and some others, including later ones. Bits beyond the tokens are ignored.
uint32_t DecodeLayout::tree_word(int64_t s, int64_t i) const {
  const Random random = Random{seed_}.stream(1003);
  const auto bits = static_cast<uint32_t>(random.bits(s * options_.q_len + i) >> 16);
  return bits | (1u << i);
}

bool DecodeLayout::is_plain() const {
  return options_.window == 0 && !options_.has_tree && !options_.has_blocks && !options_.has_keys();
}

std::vector<int64_t> DecodeLayout::seen_by(int64_t s, int64_t i) const {
  const DecodeOptions& o = options_;
  const int64_t first_new = length(s) - o.q_len, position = first_new + i;
  std::vector<int64_t> seen;
  std::vector<bool> is_listed(static_cast<size_t>(length(s)), !o.has_keys());
  if (o.has_keys()) {
    for (const int32_t key : keys(s, i)) is_listed[static_cast<size_t>(key)] = true;
  }
  for (int64_t j = 0; j < length(s); ++j) {
    if (o.window > 0 && j <= position - o.window) continue;
    const bool is_new = o.has_tree && j >= first_new;
    if (is_new ? (tree_word(s, i) >> (j - first_new) & 1u) == 0 : j > position) continue;
    if (!is_listed[static_cast<size_t>(j)]) continue;
    const auto block = static_cast<int32_t>(j / o.page_rows());
    if (o.has_blocks && std::ranges::find(blocks(s), block) == blocks(s).end()) continue;
    seen.push_back(j);
  }
  return seen;
}

std::vector<bool> DecodeLayout::seen_keys(int64_t s) const {
  if (is_plain()) return std::vector<bool>(static_cast<size_t>(length(s)), true);
  std::vector<bool> seen(static_cast<size_t>(length(s)), false);
  for (int64_t i = 0; length(s) > 0 && i < options_.q_len; ++i) {
    for (const int64_t j : seen_by(s, i)) seen[static_cast<size_t>(j)] = true;
  }
  return seen;
}

std::vector<bool> DecodeLayout::read_tokens(int64_t s) const {
  std::vector<bool> read = seen_keys(s);
  if (!options_.is_paged()) read.assign(read.size(), true);
  for (int64_t begin = 0; begin < length(s); begin += options_.page_rows()) {
    const auto first = read.begin() + begin;
    const auto last = read.begin() + std::min(begin + options_.page_rows(), length(s));
    std::fill(first, last, std::find(first, last, true) != last);
  }
  return read;
}

double DecodeLayout::num_pairs() const {
  double num_pairs = 0;
  const int64_t q_len = options_.q_len;
  for (int64_t s = 0; s < options_.batch; ++s) {
    if (length(s) == 0) continue;
    if (is_plain()) {
      num_pairs += static_cast<double>(q_len * length(s) - q_len * (q_len - 1) / 2);
      continue;
    }
    for (int64_t i = 0; i < q_len; ++i) num_pairs += static_cast<double>(seen_by(s, i).size());
  }
  return num_pairs;
}

double DecodeLayout::num_read() const {
  double num_read = 0;
  for (int64_t s = 0; s < options_.batch; ++s) {
    if (is_plain()) {
      num_read += static_cast<double>(length(s));
    } else {
      num_read += static_cast<double>(std::ranges::count(seen_keys(s), true));
    }
  }
  return num_read;
}

}  // namespace tessera::bench
