// A KV cache for tests in any format: shuffled pages, rows before heads or after them, and the
// tokens that were appended.
// SPDX-License-Identifier: MIT
#pragma once

#include <optional>

#include "cpu/kv_cache.h"
#include "tests/cpu/tensors.h"

namespace tessera::testing {

struct KvCaseFormat {
  const char* name;
  DType dtype;
  int64_t scales_per_row;  // 0: none for each row
  bool is_by_column = false;
  bool has_head_scales = false;
};

inline constexpr KvCaseFormat kKvFormats[] = {{"f32", DType::f32, 0},
                                              {"e4m3", DType::e4m3, 0},
                                              {"e4m3_heads", DType::e4m3, 0, false, true},
                                              {"e5m2", DType::e5m2, 0},
                                              {"int8", DType::i8, 1},
                                              {"uint8", DType::u8, 2},
                                              {"int4", DType::i4, 2},
                                              {"int4_columns", DType::i4, 2, true}};

inline std::string kv_format_name(const ::testing::TestParamInfo<KvCaseFormat>& info) {
  return info.param.name;
}

// Sequences of the given lengths, in f32, with keys in `format` and values in its variant with
// scales by row.
class KvCase {
 public:
  static constexpr int64_t kPageSize = 64, kHeads = 2, kDim = 24, kMaxPages = 3;

  KvCase(const KvCaseFormat& format, const std::vector<int>& lengths, bool is_head_first = false)
      : format_(format), lengths_(lengths), is_head_first_(is_head_first) {
    const auto batch = static_cast<int64_t>(lengths.size());
    const int64_t num_pages = batch * kMaxPages + 2;
    k_ = pages(num_pages), v_ = pages(num_pages);
    k_scales_ = scales(num_pages, format.is_by_column), v_scales_ = scales(num_pages, false);
    std::vector<double> order(static_cast<size_t>(num_pages));
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<double>(i);
    std::shuffle(order.begin(), order.end(), std::mt19937_64(5));
    table_ = tensor_of(DType::i32, {batch, kMaxPages}, order);
    Values lens(lengths.begin(), lengths.end());
    lens_ = tensor_of(DType::i32, {batch}, lens);
    tail_ = Tensor(DType::f32, {batch + 1, kKvGroup, kHeads, kDim});
    tails_ = Tensor(DType::i32, {batch});
    for (int64_t s = 0; s < batch; ++s)
      tails_.view().as<int32_t>()[s] = static_cast<int32_t>(batch - s);
    int64_t num_tokens = 0;
    for (const int length : lengths) num_tokens += length;
    new_k_ = Tensor(DType::f32, {num_tokens, kHeads, kDim});
    new_v_ = Tensor(DType::f32, {num_tokens, kHeads, kDim});
    fill_normal(new_k_, 11), fill_normal(new_v_, 12);
  }

  TensorView new_k() const { return new_k_; }
  TensorView new_v() const { return new_v_; }
  // The row of new_k that holds a sequence's first token.
  int64_t start(int64_t sequence) const {
    int64_t first = 0;
    for (int64_t s = 0; s < sequence; ++s) first += lengths_[static_cast<size_t>(s)];
    return first;
  }
  int64_t page(int64_t sequence, int64_t token) const {
    return table_.view().as<int32_t>()[sequence * kMaxPages + token / kPageSize];
  }

  PagedKv kv() const {
    PagedKv kv{
        .k_pages = view_of(k_), .v_pages = view_of(v_), .page_table = table_, .seq_lens = lens_};
    if (format_.scales_per_row > 0 || format_.has_head_scales) {
      kv.k_scales = k_scales_;
      kv.v_scales = v_scales_;
    }
    if (format_.is_by_column) kv.k_tail = tail_, kv.tails = tails_;
    return kv;
  }

  // Tokens begin to end of every sequence, as far as it has them.
  void append(int64_t begin, int64_t end, const std::optional<KvRope>& rope = {}) const {
    std::vector<int64_t> rows;
    Values slots, tail_slots;
    for (int64_t s = 0; s < static_cast<int64_t>(lengths_.size()); ++s) {
      for (int64_t t = begin; t < std::min<int64_t>(end, lengths_[static_cast<size_t>(s)]); ++t) {
        rows.push_back(start(s) + t);
        slots.push_back(static_cast<double>(page(s, t) * kPageSize + t % kPageSize));
        const int64_t tail = tails_.view().as<int32_t>()[s];
        tail_slots.push_back(static_cast<double>(tail * kKvGroup + t % kKvGroup));
      }
    }
    const auto count = static_cast<int64_t>(rows.size());
    if (count == 0) return;
    Tensor k(DType::f32, {count, kHeads, kDim}), v(DType::f32, {count, kHeads, kDim});
    for (int64_t i = 0; i < count; ++i) {
      const int64_t bytes = kHeads * kDim * 4, from = rows[static_cast<size_t>(i)] * kHeads * kDim;
      std::memcpy(k.view().as<float>() + i * kHeads * kDim, new_k().as<float>() + from,
                  static_cast<size_t>(bytes));
      std::memcpy(v.view().as<float>() + i * kHeads * kDim, new_v().as<float>() + from,
                  static_cast<size_t>(bytes));
    }
    const Tensor at = tensor_of(DType::i32, {count}, slots);
    const Tensor tail_at = tensor_of(DType::i64, {count}, tail_slots);
    const PagedKv cache = kv();
    KvAppendArgs args{.k = k,
                      .v = v,
                      .slots = at,
                      .k_pages = cache.k_pages,
                      .v_pages = cache.v_pages,
                      .k_scales = cache.k_scales,
                      .v_scales = cache.v_scales,
                      .rope = rope};
    if (format_.is_by_column) args.k_tail = tail_, args.tail_slots = tail_at;
    cpu::kv_append(args);
  }

  struct Gathered {
    Tensor k, v;
  };
  Gathered gather() const {
    const Index shape = {new_k().size(0), kHeads, kDim};
    Gathered out{Tensor(DType::f32, shape), Tensor(DType::f32, shape)};
    Values starts;
    for (size_t s = 0; s < lengths_.size(); ++s) {
      starts.push_back(static_cast<double>(start(static_cast<int64_t>(s))));
    }
    const Tensor at = tensor_of(DType::i32, {static_cast<int64_t>(starts.size())}, starts);
    cpu::kv_gather({.kv = kv(), .starts = at, .k = out.k, .v = out.v});
    return out;
  }

 private:
  Tensor pages(int64_t num_pages) const {
    return is_head_first_ ? Tensor(format_.dtype, {num_pages, kHeads, kPageSize, kDim})
                          : Tensor(format_.dtype, {num_pages, kPageSize, kHeads, kDim});
  }
  // Indexed [page, row, head, element] in either layout.
  TensorView view_of(const Tensor& pages) const {
    return is_head_first_ ? pages.view().transposed(1, 2) : pages.view();
  }
  Tensor scales(int64_t num_pages, bool is_by_column) const {
    if (format_.has_head_scales) return tensor_of(DType::f32, {kHeads}, {0.5, 0.03125});
    if (format_.scales_per_row == 0) return {};
    if (is_by_column) {
      return Tensor(DType::f16, {num_pages, kPageSize / kKvGroup, kHeads, kDim, 2});
    }
    return Tensor(DType::f16, {num_pages, kPageSize, kHeads, format_.scales_per_row});
  }

  KvCaseFormat format_;
  std::vector<int> lengths_;
  bool is_head_first_;
  Tensor k_, v_, k_scales_, v_scales_, table_, lens_, tail_, tails_, new_k_, new_v_;
};

}  // namespace tessera::testing
