// The operands of decode problems, in every format.
// SPDX-License-Identifier: MIT
#include "bench/problems/decode_operands.h"

#include "bench/problems/decode_data.h"

namespace tessera::bench {
namespace {

using Slot = DecodeSlot;
using Slots = DecodeSlots;

class Maker {
 public:
  Maker(RowKey key, Builder& b, const DecodeOptions& o, const DecodeLayout& layout)
      : key_(key), b_(b), o_(o), layout_(layout) {}

  Slots add_all() {
    add_queries();
    add_cache(false);
    add_cache(true);
    if (traits(o_.k).has_tail()) add_tail();
    add_lengths();
    if (o_.has_lse) add_lse();
    add_per_head();
    if (o_.has_tree) add_tree();
    if (o_.has_blocks) add_blocks();
    if (o_.has_keys()) add_keys();
    return slots_;
  }

 private:
  Operand& add(Operand& operand, Slot slot, bool is_per_row) {
    operand.is_per_row = is_per_row;
    slots_.push_back(slot);
    return operand;
  }
  Operand& add_indices(std::string_view name, std::vector<int64_t> shape, Slot slot) {
    return add(b_.dense(name, Role::input, DType::i32, std::move(shape)), slot, true);
  }

  void add_queries() {
    std::vector<int64_t> shape{o_.batch, o_.heads, o_.d};
    if (o_.has_q_axis) shape.insert(shape.begin() + 1, o_.q_len);
    const Bound bound = decode_bound(key_, o_);
    const Role role = o_.is_in_place ? Role::in_out : Role::input;
    Operand& q = add(
        b_.dense("q", role, key_.in, shape, bound),
        [](DecodeAttentionArgs& a) -> TensorView& { return a.q; }, true);
    fill_decode_queries(q, o_, layout_, b_.random());
    if (o_.is_in_place) return;
    add(
        b_.dense("out", Role::output, key_.out, shape, bound),
        [](DecodeAttentionArgs& a) -> TensorView& { return a.out; }, true);
  }

  // [lead, rows, heads, cols] and more, in the order that `strided` says.
  Operand& add_strided(std::string_view name, DType dtype, std::vector<int64_t> shape,
                       int64_t gap) {
    const int64_t rows = shape[1], heads = shape[2];
    std::vector<int64_t> strides(shape.size());
    int64_t cols = 1;
    for (size_t d = shape.size(); d-- > 3;) {
      strides[d] = cols;
      cols *= shape[d];
    }
    strides[2] = o_.strided == 1 ? rows * cols : cols;
    strides[1] = o_.strided == 1 ? cols : heads * cols + gap;
    strides[0] = rows * (heads * cols + (o_.strided == 1 ? 0 : gap));
    const int64_t count = shape[0] * strides[0];
    return b_.strided(name, Role::input, dtype, std::move(shape), std::move(strides), count);
  }

  Operand& add_pages(std::string_view name, DType dtype, int64_t num_pages, int64_t rows) {
    const int64_t gap = o_.strided == 2 ? 64 : o_.strided == 3 ? 2 : 0;
    return add_strided(name, dtype, {num_pages, rows, o_.kv_heads, o_.d}, gap);
  }

  void add_cache(bool are_values) {
    const KvFormat stored = are_values ? o_.v : o_.k;
    const bool is_per_row = !o_.is_paged();
    const auto slot = [&](Slot k, Slot v) { return are_values ? v : k; };
    Operand& pages = add(add_pages(are_values ? "v_pages" : "k_pages", pages_dtype(stored, key_.in),
                                   layout_.num_pages(), o_.page_rows()),
                         slot([](DecodeAttentionArgs& a) -> TensorView& { return a.kv.k_pages; },
                              [](DecodeAttentionArgs& a) -> TensorView& { return a.kv.v_pages; }),
                         is_per_row);
    Operand* scales = add_scales(are_values ? "v_scales" : "k_scales", stored);
    if (scales != nullptr) {
      add(*scales,
          slot([](DecodeAttentionArgs& a) -> TensorView& { return a.kv.k_scales; },
               [](DecodeAttentionArgs& a) -> TensorView& { return a.kv.v_scales; }),
          is_per_row && traits(stored).scales != KvScales::head);
    }
    fill_cache(pages, scales, o_, layout_, are_values, b_.random());
  }

  Operand* add_scales(std::string_view name, KvFormat stored) {
    const KvFormatTraits& format = traits(stored);
    if (format.scales == KvScales::none) return nullptr;
    if (format.scales == KvScales::head) {
      if (o_.head_scales == 0) return nullptr;
      const int64_t count = o_.head_scales == 1 ? 1 : o_.kv_heads;
      return &b_.dense(name, Role::input, DType::f32, {count});
    }
    const int64_t gap = o_.strided == 2 ? 6 : o_.strided == 3 ? 1 : 0;
    if (format.scales == KvScales::column) {
      return &add_strided(name, DType::f16,
                          {layout_.num_pages(), o_.page_rows() / 32, o_.kv_heads, o_.d, 2}, gap);
    }
    if (o_.strided < 2) return &add_runs(name, format.scales_per_row());
    return &add_strided(name, DType::f16,
                        {layout_.num_pages(), o_.page_rows(), o_.kv_heads, format.scales_per_row()},
                        gap);
  }

  // The scales of a head contiguous and aligned to 16 bytes, as the engine stores them.
  Operand& add_runs(std::string_view name, int64_t per_row) {
    const int64_t num_pages = layout_.num_pages(), rows = o_.page_rows();
    const int64_t run = (rows * per_row + 7) / 8 * 8;
    return b_.strided(name, Role::input, DType::f16, {num_pages, rows, o_.kv_heads, per_row},
                      {o_.kv_heads * run, per_row, run, 1}, num_pages * o_.kv_heads * run);
  }

  void add_tail() {
    const DType dtype = o_.tail_dtype.value_or(key_.in);
    Operand& tail = add(
        add_pages("k_tail", dtype, o_.num_tails, 32),
        [](DecodeAttentionArgs& a) -> TensorView& { return a.kv.k_tail; }, false);
    fill_tail(tail, o_, layout_, b_.random());
    fill_vector(add_indices("tails", {o_.batch},
                            [](DecodeAttentionArgs& a) -> TensorView& { return a.kv.tails; }),
                [&](int64_t s) { return static_cast<float>(layout_.tail_of(s)); });
  }

  // Entries of the table beyond a sequence stay poisoned.
  void add_lengths() {
    fill_vector(add_indices("seq_lens", {o_.batch},
                            [](DecodeAttentionArgs& a) -> TensorView& { return a.kv.seq_lens; }),
                [&](int64_t s) { return static_cast<float>(layout_.length(s)); });
    if (!o_.is_paged()) return;
    Operand& table =
        add_indices("page_table", {o_.batch, o_.max_pages()},
                    [](DecodeAttentionArgs& a) -> TensorView& { return a.kv.page_table; });
    if (table.host.size_bytes() == 0) return;
    int32_t* to = table.host.view().as<int32_t>() + table.offset;
    for (int64_t s = 0; s < o_.batch; ++s, to += o_.max_pages()) {
      for (int64_t t = 0; t < layout_.length(s); t += o_.page) {
        to[t / o_.page] = static_cast<int32_t>(layout_.page_of(s, t));
      }
    }
  }

  void add_lse() {
    std::vector<int64_t> shape{o_.batch, o_.heads};
    if (o_.has_q_axis) shape.push_back(o_.q_len);
    add(
        b_.dense("lse", Role::output, DType::f32, shape, decode_lse_bound(key_, o_)),
        [](DecodeAttentionArgs& a) -> TensorView& { return a.lse; }, true);
  }

  void add_per_head() {
    const Random random = b_.random();
    if (o_.has_sinks) {
      Operand& sinks = add(
          b_.dense("sinks", Role::input, DType::f32, {o_.heads}),
          [](DecodeAttentionArgs& a) -> TensorView& { return a.sinks; }, false);
      fill_decode_sinks(sinks, o_, random);
    }
    if (o_.has_alibi) {
      Operand& slopes = add(
          b_.dense("alibi_slopes", Role::input, DType::f32, {o_.heads}),
          [](DecodeAttentionArgs& a) -> TensorView& { return a.alibi_slopes; }, false);
      fill_decode_slopes(slopes, o_);
    }
  }

  void add_tree() {
    Operand& tree = add_indices("tree", {o_.batch, o_.q_len},
                                [](DecodeAttentionArgs& a) -> TensorView& { return a.tree; });
    for (int64_t n = 0; tree.host.size_bytes() != 0 && n < o_.batch * o_.q_len; ++n) {
      tree.host.view().as<int32_t>()[tree.offset + n] =
          static_cast<int32_t>(layout_.tree_word(n / o_.q_len, n % o_.q_len));
    }
  }

  // One list each; entries after its end stay poisoned.
  template <class ListOf>
  static void fill_lists(Operand& lists, Operand& counts, int64_t num_lists, const ListOf& list) {
    if (lists.host.size_bytes() == 0 || counts.host.size_bytes() == 0) return;
    const int64_t most = lists.shape.back();
    for (int64_t n = 0; n < num_lists; ++n) {
      const std::vector<int32_t>& entries = list(n);
      counts.host.view().as<int32_t>()[counts.offset + n] = static_cast<int32_t>(entries.size());
      std::ranges::copy(entries, lists.host.view().as<int32_t>() + lists.offset + n * most);
    }
  }

  void add_blocks() {
    Operand& lists = add_indices("blocks", {o_.batch, o_.max_pages()},
                                 [](DecodeAttentionArgs& a) -> TensorView& { return a.blocks; });
    Operand& counts =
        add_indices("num_blocks", {o_.batch},
                    [](DecodeAttentionArgs& a) -> TensorView& { return a.num_blocks; });
    fill_lists(lists, counts, o_.batch,
               [&](int64_t s) -> const std::vector<int32_t>& { return layout_.blocks(s); });
  }

  void add_keys() {
    Operand& lists = add_indices("keys", {o_.batch, o_.q_len, o_.max_keys},
                                 [](DecodeAttentionArgs& a) -> TensorView& { return a.keys; });
    Operand& counts = add_indices("num_keys", {o_.batch, o_.q_len},
                                  [](DecodeAttentionArgs& a) -> TensorView& { return a.num_keys; });
    fill_lists(lists, counts, o_.batch * o_.q_len, [&](int64_t n) -> const std::vector<int32_t>& {
      return layout_.keys(n / o_.q_len, n % o_.q_len);
    });
  }

  RowKey key_;
  Builder& b_;
  const DecodeOptions& o_;
  const DecodeLayout& layout_;
  Slots slots_;
};

}  // namespace

DecodeSlots add_decode_operands(RowKey key, Builder& b, const DecodeOptions& o,
                                const DecodeLayout& layout) {
  return Maker(key, b, o, layout).add_all();
}

DecodeAttentionArgs decode_args(const DecodeOptions& o, const DecodeSlots& slots,
                                std::span<const TensorView> views) {
  const DecodeScalars scalars = decode_scalars(o);
  DecodeAttentionArgs args{};
  for (size_t i = 0; i < slots.size(); ++i) slots[i](args) = views[i];
  if (o.is_in_place) args.out = args.q;
  args.scale = scalars.scale;
  args.softcap = scalars.softcap;
  args.window = o.window;
  args.longest = o.has_longest ? o.kv_len : 0;
  args.shares_pages = o.says_shared;
  return args;
}

}  // namespace tessera::bench
