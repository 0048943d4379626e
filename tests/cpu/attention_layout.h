// An attention problem laid out in tensors. What attention must not read is NaN or out of range.
// SPDX-License-Identifier: MIT
#pragma once

#include <numeric>

#include "cpu/attention.h"
#include "tests/cpu/attention_reference.h"

namespace tessera::testing {

struct Layout {
  std::string_view name;
  bool is_ragged = false;
  int64_t page_size = 0;  // 0: not paged
  bool has_v_table = false;
};
inline constexpr std::array kLayouts = {
    Layout{"batched"},
    Layout{"ragged", true},
    Layout{"batched q, pages", false, 16},
    Layout{"ragged q, pages", true, 8},
    Layout{"ragged q, pages of v apart", true, 16, true},
};

// All queries of a batched q have one length; k may be shorter than its memory.
class LaidOutAttention {
 public:
  LaidOutAttention(const AttentionProblem& problem, const AttentionData& data, const Layout& layout)
      : p_(problem), layout_(layout) {
    const int64_t tokens = total(&Lengths::q), longest_kv = longest(&Lengths::kv);
    const Index queries =
        layout.is_ragged ? Index{tokens} : Index{p_.batch(), longest(&Lengths::q)};
    q_ = memory(p_.dtype, queries, p_.num_heads, p_.d_k);
    out_ = memory(p_.out_dtype, queries, p_.num_heads, p_.d_v);
    Index lse = queries;
    lse.insert(lse.end() - 1, p_.num_heads);
    lse_ = Tensor(DType::f32, lse);
    fill(lse_, [] { return kNan; });
    Index keys = layout.is_ragged ? Index{total(&Lengths::kv)} : Index{p_.batch(), longest_kv + 3};
    if (is_paged()) {
      max_pages_ = longest_kv / layout.page_size + 2;
      keys = {p_.batch() * max_pages_ + 2, layout.page_size};
      for (Tensor* table : {&k_table_, &v_table_}) make_table(*table, table == &k_table_ ? 5 : 6);
      if (!layout.has_v_table) v_table_ = k_table_.to({});
    }
    k_ = memory(p_.dtype, keys, p_.num_kv_heads, p_.d_k);
    v_ = memory(p_.dtype, keys, p_.num_kv_heads, p_.d_v);
    make_lengths();
    place(data);
    make_args(data);
  }

  const AttentionArgs& args() const { return args_; }
  Values out() const { return collect(heads_of(out_, p_.num_heads)); }
  Values lse() const {
    const TensorView& view = lse_;
    return collect(view.transposed(-1, -2));
  }

 private:
  bool is_paged() const { return layout_.page_size > 0; }
  int64_t total(int64_t Lengths::*part) const {
    int64_t sum = 0;
    for (const Lengths& length : p_.lengths) sum += length.*part;
    return sum;
  }
  int64_t longest(int64_t Lengths::*part) const {
    int64_t most = 0;
    for (const Lengths& length : p_.lengths) most = std::max(most, length.*part);
    return most;
  }
  // Tokens with one head more than asked for, all NaN.
  static Tensor memory(DType dtype, Index shape, int64_t num_heads, int64_t d) {
    shape.insert(shape.end(), {num_heads + 1, d});
    Tensor tensor(dtype, shape);
    if (tensor.size_bytes() > 0) {
      std::memset(tensor.view().data, 0xff, static_cast<size_t>(tensor.size_bytes()));
    }
    return tensor;
  }
  static TensorView heads_of(const Tensor& memory, int64_t num_heads) {
    return memory.view().slice(-2, 0, num_heads);
  }
  // Token `row` of sequence (or page) s.
  static TensorView token_of(const TensorView& view, int64_t s, int64_t row) {
    if (view.rank == 3) return view.slice(0, row, row + 1);
    return view.slice(0, s, s + 1).slice(1, row, row + 1);
  }

  void make_table(Tensor& table, uint64_t seed) const {
    std::vector<int32_t> pages(static_cast<size_t>(p_.batch() * max_pages_ + 2));
    std::iota(pages.begin(), pages.end(), 0);
    std::shuffle(pages.begin(), pages.end(), std::mt19937_64(seed));
    table = Tensor(DType::i32, {p_.batch(), max_pages_});
    int32_t* entries = table.view().as<int32_t>();
    std::copy_n(pages.begin(), table.view().num_elements(), entries);
    for (int64_t s = 0; s < p_.batch(); ++s) {
      for (int64_t page = 0; page < max_pages_; ++page) {
        bool is_seen = false;
        for (int64_t i = 0; i < layout_.page_size; ++i) {
          is_seen |= is_seen_key(s, page * layout_.page_size + i);
        }
        if (!is_seen) entries[s * max_pages_ + page] = page % 2 == 0 ? -7 : 99999;
      }
    }
  }
  bool is_seen_key(int64_t s, int64_t key) const {
    const Lengths& length = p_.lengths[static_cast<size_t>(s)];
    for (int64_t i = 0; key < length.kv && i < length.q; ++i) {
      if (p_.mask.sees(p_.query(s, i), key)) return true;
    }
    return false;
  }

  void make_lengths() {
    q_starts_ = Tensor(DType::i32, {p_.batch() + 1});
    kv_starts_ = Tensor(DType::i32, {p_.batch() + 1});
    kv_lens_ = Tensor(DType::i32, {p_.batch()});
    int32_t *q = q_starts_.view().as<int32_t>(), *kv = kv_starts_.view().as<int32_t>();
    q[0] = kv[0] = 0;
    for (size_t s = 0; s < p_.lengths.size(); ++s) {
      q[s + 1] = q[s] + static_cast<int32_t>(p_.lengths[s].q);
      kv[s + 1] = kv[s] + static_cast<int32_t>(p_.lengths[s].kv);
      kv_lens_.view().as<int32_t>()[s] = static_cast<int32_t>(p_.lengths[s].kv);
    }
  }

  // Keys that nobody sees stay NaN.
  void place(const AttentionData& data) {
    for (int64_t s = 0; s < p_.batch(); ++s) {
      const size_t at = static_cast<size_t>(s);
      for (int64_t i = 0; i < p_.lengths[at].q; ++i) {
        set_values(token_of(heads_of(q_, p_.num_heads), s, q_row(s, i)),
                   values_of(data.q[at].view().slice(0, i, i + 1)));
      }
      for (int64_t key = 0; key < p_.lengths[at].kv; ++key) {
        if (!is_seen_key(s, key)) continue;
        place_key(data.k[at], k_, k_table_, s, key);
        place_key(data.v[at], v_, v_table_, s, key);
      }
    }
  }
  void place_key(const Tensor& from, const Tensor& to, const Tensor& table, int64_t s,
                 int64_t key) const {
    int64_t batch = s, row = key;
    if (is_paged()) {
      batch = table.view().as<int32_t>()[s * max_pages_ + key / layout_.page_size];
      row = key % layout_.page_size;
    } else if (layout_.is_ragged) {
      row += kv_starts_.view().as<int32_t>()[s];
    }
    set_values(token_of(heads_of(to, p_.num_kv_heads), batch, row),
               values_of(from.view().slice(0, key, key + 1)));
  }
  int64_t q_row(int64_t s, int64_t i) const {
    return layout_.is_ragged ? q_starts_.view().as<int32_t>()[s] + i : i;
  }

  void make_args(const AttentionData& data) {
    args_ = {.q = heads_of(q_, p_.num_heads),
             .k = heads_of(k_, p_.num_kv_heads),
             .v = heads_of(v_, p_.num_kv_heads),
             .out = heads_of(out_, p_.num_heads),
             .lse = lse_,
             .scale = p_.scale,
             .mask = {.left = p_.mask.left, .right = p_.mask.right},
             .softcap = p_.softcap,
             .dropout = p_.dropout};
    if (layout_.is_ragged) args_.q_starts = q_starts_;
    if (layout_.is_ragged && !is_paged()) args_.kv_starts = kv_starts_;
    if (!layout_.is_ragged || is_paged()) args_.kv_lens = kv_lens_;
    if (is_paged()) args_.k_page_table = k_table_;
    if (layout_.has_v_table) args_.v_page_table = v_table_;
    if (p_.has_sinks) args_.sinks = data.sinks;
    if (p_.has_slopes) args_.alibi_slopes = data.slopes;
    if (p_.has_scales) {
      args_.q_scale = data.q_scale;
      args_.k_scale = data.k_scale;
      args_.v_scale = data.v_scale;
    }
    if (p_.mask.num_intervals > 0) make_intervals();
  }
  void make_intervals() {
    Index shape(args_.q.shape.begin(), args_.q.shape.begin() + args_.q.rank - 2);
    shape.insert(shape.end(), {p_.mask.num_intervals, 2});
    intervals_ = Tensor(DType::i32, shape);
    const TensorView& view = intervals_;
    for (int64_t s = 0; s < p_.batch(); ++s) {
      for (int64_t i = 0; i < p_.lengths[static_cast<size_t>(s)].q; ++i) {
        int32_t* to = token_of(view, s, q_row(s, i)).as<int32_t>();
        for (const auto& [begin, end] : p_.mask.intervals(p_.query(s, i))) {
          *to++ = begin;
          *to++ = end;
        }
      }
    }
    args_.mask.intervals = view;
  }

  // The rows of queries in the order of the reference. lse has an axis less.
  Values collect(const TensorView& view) const {
    Values values;
    const int token_axis = layout_.is_ragged ? 0 : 1;
    for (int64_t s = 0; s < p_.batch(); ++s) {
      const TensorView sequence = layout_.is_ragged ? view : view.slice(0, s, s + 1);
      for (int64_t i = 0; i < p_.lengths[static_cast<size_t>(s)].q; ++i) {
        const int64_t row = q_row(s, i);
        const Values of_row = values_of(sequence.slice(token_axis, row, row + 1));
        values.insert(values.end(), of_row.begin(), of_row.end());
      }
    }
    return values;
  }

  AttentionProblem p_;
  Layout layout_;
  int64_t max_pages_ = 0;
  Tensor q_, k_, v_, out_, lse_, q_starts_, kv_starts_, kv_lens_, k_table_, v_table_, intervals_;
  AttentionArgs args_;
};

}  // namespace tessera::testing
