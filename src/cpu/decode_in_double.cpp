// Decode attention in double precision for every format and option: the reference implementation.
// SPDX-License-Identifier: MIT
//
// An item is one KV head of a sequence with all queries that share it. Keys and values that none of
// them sees are not read. A score is one chain of additions, and so is a sum over the keys, in
// ascending order: a query's bits depend only on what it sees.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/parallel.h"
#include "core/text.h"
#include "cpu/attention.h"
#include "cpu/attention_scores.h"
#include "cpu/float_row.h"
#include "cpu/kv_rows.h"
#include "tessera/core/convert.h"
#include "tessera/core/error.h"

namespace tessera::cpu {
namespace {

constexpr double kLowest = -std::numeric_limits<double>::infinity();

int64_t q_len_of(const DecodeAttentionArgs& args) { return args.q.rank == 4 ? args.q.size(1) : 1; }

// The element at which query i of a head begins.
int64_t query_element(const TensorView& q, int64_t sequence, int64_t i, int64_t head) {
  const int64_t token = q.rank == 4 ? i * q.stride(1) : 0;
  return sequence * q.stride(0) + token + head * q.stride(-2);
}

// Which keys the queries of a sequence see.
class SeenByQueries {
 public:
  SeenByQueries(const DecodeAttentionArgs& args, int64_t sequence, int64_t length)
      : args_(args), sequence_(sequence), length_(length), q_len_(q_len_of(args)) {
    if (length == 0) return;  // the lists of an idle slot are not used and were not checked
    mark_blocks();
    mark_keys();
  }

  bool sees(int64_t i, int64_t key) const {
    const int64_t position = length_ - q_len_ + i, first_new = length_ - q_len_;
    if (args_.window > 0 && key <= position - args_.window) return false;
    if (!blocks_.empty() && blocks_[static_cast<size_t>(key / page_size())] == 0) return false;
    if (!keys_.empty() && keys_[static_cast<size_t>(i * length_ + key)] == 0) return false;
    if (args_.tree.data == nullptr || key < first_new) return key <= position;
    const int32_t word = args_.tree.as<int32_t>()[sequence_ * q_len_ + i];
    return (static_cast<uint32_t>(word) >> (key - first_new) & 1u) != 0;
  }

 private:
  int64_t page_size() const { return args_.kv.k_pages.size(1); }

  void mark_blocks() {
    if (args_.blocks.rank != 2) return;
    blocks_.assign(static_cast<size_t>((length_ + page_size() - 1) / page_size() + 1), 0);
    const int32_t* list = args_.blocks.as<int32_t>() + sequence_ * args_.blocks.stride(0);
    for (int64_t b = 0; b < args_.num_blocks.as<int32_t>()[sequence_]; ++b) {
      blocks_[static_cast<size_t>(list[b])] = 1;
    }
  }
  void mark_keys() {
    if (args_.keys.rank != 3) return;
    keys_.assign(static_cast<size_t>(q_len_ * length_ + 1), 0);
    for (int64_t i = 0; i < q_len_; ++i) {
      const int32_t* list =
          args_.keys.as<int32_t>() + sequence_ * args_.keys.stride(0) + i * args_.keys.stride(1);
      for (int64_t n = 0; n < args_.num_keys.as<int32_t>()[sequence_ * q_len_ + i]; ++n) {
        keys_[static_cast<size_t>(i * length_ + list[n])] = 1;
      }
    }
  }

  const DecodeAttentionArgs& args_;
  int64_t sequence_;
  int64_t length_;
  int64_t q_len_;
  std::vector<uint8_t> blocks_;  // empty: no list
  std::vector<uint8_t> keys_;    // [q_len, length]; empty: no list
};

class DecodeItem {
 public:
  DecodeItem(const DecodeAttentionArgs& args, const KvTokens& tokens)
      : args_(args),
        tokens_(tokens),
        q_len_(q_len_of(args)),
        d_(args.q.size(-1)),
        heads_per_kv_(args.q.size(-2) / args.kv.k_pages.size(2)) {}

  void run(int64_t sequence, int64_t kv_head) {
    sequence_ = sequence;
    kv_head_ = kv_head;
    length_ = tokens_.length(sequence);
    const SeenByQueries seen(args_, sequence, length_);
    load_queries();
    add_scores(seen);
    for (int64_t row = 0; row < num_rows(); ++row) weigh(row);
    add_values();
    with_float_type(args_.out.dtype, [this](auto type) { store<decltype(type)>(); });
  }

 private:
  int64_t num_rows() const { return q_len_ * heads_per_kv_; }
  int64_t query(int64_t row) const { return row / heads_per_kv_; }
  int64_t head(int64_t row) const { return kv_head_ * heads_per_kv_ + row % heads_per_kv_; }
  double& score(int64_t row, int64_t key) {
    return scores_[static_cast<size_t>(row * length_ + key)];
  }

  void load_queries() {
    queries_.resize(static_cast<size_t>(num_rows() * d_));
    with_float_type(args_.q.dtype, [this](auto type) {
      using T = decltype(type);
      for (int64_t row = 0; row < num_rows(); ++row) {
        const T* q = args_.q.as<T>() + query_element(args_.q, sequence_, query(row), head(row));
        for (int64_t i = 0; i < d_; ++i) {
          queries_[static_cast<size_t>(row * d_ + i)] = static_cast<double>(to_float(q[i]));
        }
      }
    });
  }

  // Minus infinity for keys that are not seen.
  void add_scores(const SeenByQueries& seen) {
    const double scale = args_.scale != 0.0f ? static_cast<double>(args_.scale)
                                             : 1.0 / std::sqrt(static_cast<double>(d_));
    scores_.assign(static_cast<size_t>(num_rows() * length_), kLowest);
    is_seen_.assign(static_cast<size_t>(length_), 0);
    elements_.resize(static_cast<size_t>(d_));
    for (int64_t key = 0; key < length_; ++key) {
      for (int64_t row = 0; row < num_rows(); ++row) {
        if (!seen.sees(query(row), key)) continue;
        uint8_t& is_read = is_seen_[static_cast<size_t>(key)];
        if (is_read == 0) tokens_.read_k(sequence_, key, kv_head_, elements_.data());
        is_read = 1;
        double product = 0.0;
        for (int64_t i = 0; i < d_; ++i) {
          product += queries_[static_cast<size_t>(row * d_ + i)] *
                     static_cast<double>(elements_[static_cast<size_t>(i)]);
        }
        const int64_t position = length_ - q_len_ + query(row);
        score(row, key) =
            score_of(product, scale, args_.softcap, per_head(args_.alibi_slopes, head(row), 0.0),
                     std::abs(position - key));
      }
    }
  }

  void weigh(int64_t row) {
    const double sink = per_head(args_.sinks, head(row), kLowest);
    double maximum = sink;
    for (int64_t key = 0; key < length_; ++key) maximum = std::max(maximum, score(row, key));
    const double shift = maximum == kLowest ? 0.0 : maximum;
    double sum = std::exp(sink - shift);
    for (int64_t key = 0; key < length_; ++key) {
      double& weight = score(row, key);
      weight = std::exp(weight - shift);
      sum += weight;
    }
    sums_.resize(static_cast<size_t>(num_rows()));
    sums_[static_cast<size_t>(row)] = sum;
    if (args_.lse.data == nullptr) return;
    const TensorView& lse = args_.lse;
    const int64_t at = sequence_ * lse.stride(0) + head(row) * lse.stride(1) +
                       (lse.rank == 3 ? query(row) * lse.stride(2) : 0);
    lse.as<float>()[at] = static_cast<float>(shift + std::log(sum));
  }

  void add_values() {
    outs_.assign(static_cast<size_t>(num_rows() * d_), 0.0);
    for (int64_t key = 0; key < length_; ++key) {
      if (is_seen_[static_cast<size_t>(key)] == 0) continue;
      tokens_.read_v(sequence_, key, kv_head_, elements_.data());
      for (int64_t row = 0; row < num_rows(); ++row) {
        const double weight = score(row, key);
        if (weight == 0.0) continue;  // the key may be unseen, and its value NaN
        for (int64_t i = 0; i < d_; ++i) {
          outs_[static_cast<size_t>(row * d_ + i)] +=
              weight * static_cast<double>(elements_[static_cast<size_t>(i)]);
        }
      }
    }
  }

  template <class T>
  void store() {
    for (int64_t row = 0; row < num_rows(); ++row) {
      T* out = args_.out.as<T>() + query_element(args_.out, sequence_, query(row), head(row));
      const double sum = sums_[static_cast<size_t>(row)];
      for (int64_t i = 0; i < d_; ++i) {
        const double value = outs_[static_cast<size_t>(row * d_ + i)];
        out[i] = from_float<T>(sum == 0.0 ? 0.0f : static_cast<float>(value / sum));
      }
    }
  }

  const DecodeAttentionArgs& args_;
  const KvTokens& tokens_;
  int64_t q_len_;
  int64_t d_;
  int64_t heads_per_kv_;
  int64_t sequence_ = 0;
  int64_t kv_head_ = 0;
  int64_t length_ = 0;
  std::vector<double> queries_;   // [rows, d]
  std::vector<double> scores_;    // [rows, length]: scores, then weights
  std::vector<double> sums_;      // [rows]
  std::vector<double> outs_;      // [rows, d], unnormalised
  std::vector<uint8_t> is_seen_;  // [length]: by some row
  std::vector<float> elements_;   // [d]
};

void check_count(std::string_view what, int64_t at, int64_t count, int64_t most) {
  if (count >= 0 && count <= most) return;
  fail(concat("attention_decode: ", what, "[", at, "] is ", count, "; a list has 0 to ", most));
}

// Checks that lists of blocks and keys are in range, and that sequences have enough tokens.
void check_lists(const DecodeAttentionArgs& args, const KvTokens& tokens) {
  const int64_t q_len = q_len_of(args), page_size = args.kv.k_pages.size(1);
  for (int64_t s = 0; s < args.kv.seq_lens.size(0); ++s) {
    const int64_t length = tokens.length(s);
    if (length > 0 && length < q_len) {
      fail(concat("attention_decode: seq_lens[", s, "] is ", length, " and q has ", q_len,
                  " tokens of it; they are the last of the sequence, or it is 0 for none"));
    }
    if (args.blocks.rank == 2 && length > 0) {
      const int64_t count = args.num_blocks.as<int32_t>()[s];
      check_count("num_blocks", s, count, args.blocks.size(1));
      for (int64_t i = 0; i < count; ++i) {
        const int64_t block = args.blocks.as<int32_t>()[s * args.blocks.stride(0) + i];
        if (block >= 0 && block * page_size < length) continue;
        fail(concat("attention_decode: blocks[", s, ", ", i, "] is ", block, "; the sequence has ",
                    length, " tokens in blocks of ", page_size));
      }
    }
    for (int64_t i = 0; args.keys.rank == 3 && length > 0 && i < q_len; ++i) {
      const int64_t count = args.num_keys.as<int32_t>()[s * q_len + i];
      check_count("num_keys", s * q_len + i, count, args.keys.size(2));
      const int32_t* list =
          args.keys.as<int32_t>() + s * args.keys.stride(0) + i * args.keys.stride(1);
      for (int64_t n = 0; n < count; ++n) {
        if (list[n] >= 0 && list[n] < length) continue;
        fail(concat("attention_decode: keys[", s, ", ", i, ", ", n, "] is ", list[n],
                    "; the sequence has ", length, " tokens"));
      }
    }
  }
}

}  // namespace

void decode_in_double(const DecodeAttentionArgs& args) {
  check_tokens("attention_decode", args.kv);
  const KvTokens tokens(args.kv);
  check_lists(args, tokens);
  const int64_t num_kv_heads = args.kv.k_pages.size(2);
  const int64_t num_items = args.kv.seq_lens.size(0) * num_kv_heads;
  parallel_shares(num_items, 1, [&](Share& share) {
    DecodeItem item(args, tokens);
    while (share.next()) item.run(share.begin() / num_kv_heads, share.begin() % num_kv_heads);
  });
}

}  // namespace tessera::cpu
