// Attention in double precision for every layout, mask and option: the reference implementation.
// SPDX-License-Identifier: MIT
//
// Work      An item is some rows, (query, head) pairs that share a KV head, over all keys they see.
//           Three passes: scores by blocks of keys, weights row by row, values by blocks of keys. A
//           block of K (transposed) or V becomes double once for all rows of the item.
// Order     A score is one chain of additions over d_k, a sum of weights and an element of out one
//           chain over the keys seen, in order. So a row's bits depend on what it sees alone.
// Reads     Only keys and values that a row of the item sees. Others, and their page numbers, may
//           be invalid.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/parallel.h"
#include "core/philox.h"
#include "cpu/attention.h"
#include "cpu/attention_scores.h"
#include "cpu/attention_sequences.h"
#include "tessera/core/convert.h"
#include "tessera/core/error.h"

namespace tessera::cpu {
namespace {

constexpr int64_t kRowsPerItem = 64;  // unpacking a key then costs little compared to its products
constexpr int64_t kKeyBlock = 128;    // with d of 128 a block is 128 KiB and stays in the L2 cache
constexpr int64_t kParallelWork = int64_t{1} << 18;  // multiply-adds that are worth a thread
constexpr double kLowest = -std::numeric_limits<double>::infinity();

// Calls f with a value of the storage type of `dtype`; the checks allow no other.
template <class F>
void with_input_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32: return f(float{});
    case DType::f16: return f(F16{});
    case DType::bf16: return f(Bf16{});
    case DType::e4m3: return f(E4m3{});
    default: fail("the CPU was handed a type that is not f32, f16, bf16 or e4m3");
  }
}

// c[j] += sum_i a[i] * b[i, j], each element as one chain in the order of i. Four rows of b per
// pass, to load and store c less often.
void add_products(const double* a, int64_t num_rows, const double* __restrict b, int64_t b_stride,
                  int64_t count, double* __restrict c) {
  int64_t i = 0;
  for (; i + 4 <= num_rows; i += 4) {
    const double *b0 = b + i * b_stride, *b1 = b0 + b_stride, *b2 = b1 + b_stride;
    const double* b3 = b2 + b_stride;
    const double a0 = a[i], a1 = a[i + 1], a2 = a[i + 2], a3 = a[i + 3];
    for (int64_t j = 0; j < count; ++j) {
      c[j] = (((c[j] + a0 * b0[j]) + a1 * b1[j]) + a2 * b2[j]) + a3 * b3[j];
    }
  }
  for (; i < num_rows; ++i) {
    for (int64_t j = 0; j < count; ++j) c[j] += a[i] * b[i * b_stride + j];
  }
}

// The element at which a row of heads begins. Ragged tensors have no batch axis; in paged ones it
// is the page.
int64_t element_of(const TensorView& rows, int64_t batch, int64_t row, int64_t head) {
  const int64_t batch_stride = rows.rank == 4 ? rows.stride(0) : 0;
  return batch * batch_stride + row * rows.stride(-3) + head * rows.stride(-2);
}

// The element at which key (or value) `key` of a sequence begins.
int64_t kv_element(const TensorView& kv, const TensorView& table, const AttentionSequence& sequence,
                   int64_t key, int64_t kv_head) {
  if (table.rank != 2) {
    return element_of(kv, sequence.index, sequence.kv_begin + key, kv_head);
  }
  const int64_t page_size = kv.size(1);
  const int32_t* pages = table.as<int32_t>() + sequence.index * table.stride(0);
  return element_of(kv, pages[key / page_size], key % page_size, kv_head);
}

// An optional factor of a sequence and KV head.
double scale_at(const TensorView& scales, int64_t sequence, int64_t kv_head) {
  if (scales.data == nullptr) return 1.0;
  return static_cast<double>(scales.as<float>()[sequence * scales.size(1) + kv_head]);
}

// Dropout: which weights are dropped is a pure function of their position.
class Dropout {
 public:
  Dropout(const AttentionDropout& dropout, int64_t position, int64_t head, int64_t sequence)
      : seed_(dropout.seed),
        below_(static_cast<uint32_t>(std::ldexp(static_cast<double>(dropout.rate), 32))),
        keep_scale_(1.0 / (1.0 - static_cast<double>(dropout.rate))),
        counter_{{0, static_cast<uint32_t>(position), static_cast<uint32_t>(head),
                  static_cast<uint32_t>(sequence)}} {}

  // What the weight of a key is multiplied by. Four keys share a block of random words.
  double factor(int64_t key) {
    const uint32_t block = static_cast<uint32_t>(key / 4);
    if (!has_words_ || block != counter_.words[0]) {
      counter_.words[0] = block;
      words_ = philox(counter_, seed_);
      has_words_ = true;
    }
    return words_.words[key % 4] < below_ ? 0.0 : keep_scale_;
  }

 private:
  uint64_t seed_;
  uint32_t below_;
  double keep_scale_;
  PhiloxWords counter_;
  PhiloxWords words_{};
  bool has_words_ = false;
};

struct Item {
  AttentionSequence sequence;
  int64_t kv_head = 0;
  int64_t first_row = 0;  // row r is query r / heads_per_kv and head r % heads_per_kv of the group
  int64_t num_rows = 0;
};

// Computes one item; keeps its memory between items.
class ItemInDouble {
 public:
  void run(const AttentionArgs& args, const Item& item) {
    args_ = &args;
    item_ = &item;
    d_k_ = args.k.size(-1);
    d_v_ = args.v.size(-1);
    heads_per_kv_ = args.q.size(-2) / args.k.size(-2);
    find_keys();
    load_queries();
    add_scores();
    sums_.assign(static_cast<size_t>(item.num_rows), 0.0);
    for (int64_t row = 0; row < item.num_rows; ++row) weigh(row);
    add_values();
    with_input_type(args.out.dtype, [this](auto type) { store<decltype(type)>(); });
  }

 private:
  int64_t query(int64_t row) const { return (item_->first_row + row) / heads_per_kv_; }
  int64_t head(int64_t row) const {
    return item_->kv_head * heads_per_kv_ + (item_->first_row + row) % heads_per_kv_;
  }
  // From this key of the hull on.
  double* scores(int64_t row, int64_t key) {
    return scores_.data() + row * (hull_.end - hull_.begin) + (key - hull_.begin);
  }

  void find_keys();
  void load_queries();
  template <class Unpack, class Use>
  void for_each_block(const TensorView& kv, const TensorView& table, const Unpack& unpack,
                      const Use& use);
  void add_scores();
  void weigh(int64_t row);
  void add_values();
  template <class T>
  void store();

  const AttentionArgs* args_ = nullptr;
  const Item* item_ = nullptr;
  int64_t d_k_ = 0;
  int64_t d_v_ = 0;
  int64_t heads_per_kv_ = 0;
  KeyRange hull_;                 // of the keys that the rows see
  std::vector<SeenKeys> seen_;    // [rows]
  std::vector<uint8_t> is_seen_;  // [keys of the hull]: by some row
  std::vector<double> queries_;   // [rows, d_k]
  std::vector<double> block_;     // [d_k, kKeyBlock] of keys or [kKeyBlock, d_v] of values
  std::vector<double> scores_;    // [rows, keys of the hull]: products, then weights
  std::vector<double> sums_;      // [rows], of weights
  std::vector<double> outs_;      // [rows, d_v], unnormalised
};

void ItemInDouble::find_keys() {
  seen_.clear();
  hull_ = {std::numeric_limits<int64_t>::max(), 0};
  for (int64_t row = 0; row < item_->num_rows; ++row) {
    seen_.push_back(seen_keys(*args_, item_->sequence, query(row)));
    for (KeyRange keys : seen_.back()) {
      if (keys.is_empty()) continue;
      hull_ = {std::min(hull_.begin, keys.begin), std::max(hull_.end, keys.end)};
    }
  }
  if (hull_.is_empty()) hull_ = {};
  is_seen_.assign(static_cast<size_t>(hull_.end - hull_.begin), 0);
  for (const SeenKeys& seen : seen_) {
    for (KeyRange keys : seen) {
      if (keys.is_empty()) continue;
      std::fill_n(is_seen_.data() + (keys.begin - hull_.begin), keys.end - keys.begin, uint8_t{1});
    }
  }
}

void ItemInDouble::load_queries() {
  queries_.resize(static_cast<size_t>(item_->num_rows * d_k_));
  with_input_type(args_->q.dtype, [this](auto type) {
    using T = decltype(type);
    for (int64_t row = 0; row < item_->num_rows; ++row) {
      const T* q = args_->q.as<T>() + element_of(args_->q, item_->sequence.index,
                                                 item_->sequence.q_begin + query(row), head(row));
      for (int64_t i = 0; i < d_k_; ++i) {
        queries_[static_cast<size_t>(row * d_k_ + i)] = static_cast<double>(to_float(q[i]));
      }
    }
  });
}

// Block by block: unpack(slot, elements) for each of its keys that a row sees, then use(row, keys,
// slot) for each run of keys that a row sees; slot counts within the block.
template <class Unpack, class Use>
void ItemInDouble::for_each_block(const TensorView& kv, const TensorView& table,
                                  const Unpack& unpack, const Use& use) {
  for (int64_t begin = hull_.begin; begin < hull_.end; begin += kKeyBlock) {
    const int64_t end = std::min(begin + kKeyBlock, hull_.end);
    with_input_type(kv.dtype, [&](auto type) {
      using T = decltype(type);
      for (int64_t key = begin; key < end; ++key) {
        if (is_seen_[static_cast<size_t>(key - hull_.begin)] == 0) continue;
        unpack(key - begin,
               kv.as<T>() + kv_element(kv, table, item_->sequence, key, item_->kv_head));
      }
    });
    for (int64_t row = 0; row < item_->num_rows; ++row) {
      for (KeyRange seen : seen_[static_cast<size_t>(row)]) {
        const KeyRange keys{std::max(seen.begin, begin), std::min(seen.end, end)};
        if (!keys.is_empty()) use(row, keys, keys.begin - begin);
      }
    }
  }
}

void ItemInDouble::add_scores() {
  scores_.assign(static_cast<size_t>(item_->num_rows * (hull_.end - hull_.begin)), 0.0);
  block_.resize(static_cast<size_t>(d_k_ * kKeyBlock));
  const auto unpack = [this](int64_t slot, const auto* k) {
    for (int64_t i = 0; i < d_k_; ++i) {
      block_[static_cast<size_t>(i * kKeyBlock + slot)] = static_cast<double>(to_float(k[i]));
    }
  };
  const auto use = [this](int64_t row, KeyRange keys, int64_t slot) {
    add_products(queries_.data() + row * d_k_, d_k_, block_.data() + slot, kKeyBlock,
                 keys.end - keys.begin, scores(row, keys.begin));
  };
  for_each_block(args_->k, args_->k_page_table, unpack, use);
}

// Turns products into weights; their sum goes to sums_ and its logarithm to lse.
void ItemInDouble::weigh(int64_t row) {
  const AttentionArgs& args = *args_;
  const int64_t s = item_->sequence.index, h = head(row);
  const int64_t position = item_->sequence.position(query(row));
  const double scale = args.scale != 0.0f ? static_cast<double>(args.scale)
                                          : 1.0 / std::sqrt(static_cast<double>(d_k_));
  const double factor =
      scale * scale_at(args.q_scale, s, item_->kv_head) * scale_at(args.k_scale, s, item_->kv_head);
  const double slope = per_head(args.alibi_slopes, h, 0.0);
  const double sink = per_head(args.sinks, h, kLowest);
  const SeenKeys& seen = seen_[static_cast<size_t>(row)];
  double maximum = sink;
  for (KeyRange keys : seen) {
    for (int64_t key = keys.begin; key < keys.end; ++key) {
      double& score = *scores(row, key);
      score = score_of(score, factor, args.softcap, slope, std::abs(position - key));
      if (score > maximum) maximum = score;
    }
  }
  // If every score is minus infinity, the weights are 0, not NaN.
  const double shift = maximum == kLowest ? 0.0 : maximum;
  double sum = std::exp(sink - shift);
  Dropout dropout(args.dropout, position, h, s);
  for (KeyRange keys : seen) {
    for (int64_t key = keys.begin; key < keys.end; ++key) {
      double& weight = *scores(row, key);
      weight = std::exp(weight - shift);
      sum += weight;
      if (args.dropout.rate > 0.0f) weight *= dropout.factor(key);
    }
  }
  sums_[static_cast<size_t>(row)] = sum;
  if (args.lse.data == nullptr) return;
  const TensorView& lse = args.lse;
  const int64_t batch_offset = lse.rank == 3 ? s * lse.stride(0) : 0;
  lse.as<float>()[batch_offset + h * lse.stride(-2) +
                  (item_->sequence.q_begin + query(row)) * lse.stride(-1)] =
      static_cast<float>(shift + std::log(sum));
}

void ItemInDouble::add_values() {
  outs_.assign(static_cast<size_t>(item_->num_rows * d_v_), 0.0);
  block_.resize(static_cast<size_t>(kKeyBlock * d_v_));
  const auto unpack = [this](int64_t slot, const auto* v) {
    for (int64_t i = 0; i < d_v_; ++i) {
      block_[static_cast<size_t>(slot * d_v_ + i)] = static_cast<double>(to_float(v[i]));
    }
  };
  const auto use = [this](int64_t row, KeyRange keys, int64_t slot) {
    add_products(scores(row, keys.begin), keys.end - keys.begin, block_.data() + slot * d_v_, d_v_,
                 d_v_, outs_.data() + row * d_v_);
  };
  for_each_block(args_->v, v_table_of(*args_), unpack, use);
}

template <class T>
void ItemInDouble::store() {
  const double v_scale = scale_at(args_->v_scale, item_->sequence.index, item_->kv_head);
  for (int64_t row = 0; row < item_->num_rows; ++row) {
    T* out = args_->out.as<T>() + element_of(args_->out, item_->sequence.index,
                                             item_->sequence.q_begin + query(row), head(row));
    const double* values = outs_.data() + row * d_v_;
    const double sum = sums_[static_cast<size_t>(row)];
    for (int64_t i = 0; i < d_v_; ++i) {
      out[i] = from_float<T>(sum == 0.0 ? 0.0f : static_cast<float>(values[i] / sum * v_scale));
    }
  }
}

// Appends the items of a sequence; returns the number of multiply-adds.
int64_t plan_sequence(const AttentionArgs& args, const AttentionSequence& sequence,
                      std::vector<Item>& items) {
  const int64_t num_kv_heads = args.k.size(-2);
  const int64_t num_rows = sequence.q_len * (args.q.size(-2) / num_kv_heads);
  for (int64_t kv_head = 0; kv_head < num_kv_heads; ++kv_head) {
    for (int64_t row = 0; row < num_rows; row += kRowsPerItem) {
      items.push_back({sequence, kv_head, row, std::min(kRowsPerItem, num_rows - row)});
    }
  }
  return num_rows * num_kv_heads * sequence.kv_len * (args.k.size(-1) + args.v.size(-1));
}

}  // namespace

void attention_in_double(const AttentionArgs& args) {
  check_sequences(args, {});
  std::vector<Item> items;
  int64_t work = 0;
  for (int64_t s = 0; s < batch_of(args); ++s) {
    work += plan_sequence(args, sequence_of(args, s), items);
  }
  const int64_t num_items = static_cast<int64_t>(items.size());
  parallel_shares(num_items, work > kParallelWork ? 1 : num_items, [&](Share& share) {
    ItemInDouble in_hand;
    while (share.next()) {
      for (int64_t i = share.begin(); i < share.end(); ++i) {
        in_hand.run(args, items[static_cast<size_t>(i)]);
      }
    }
  });
}

}  // namespace tessera::cpu
