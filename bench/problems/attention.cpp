// Problems for attention over prompts: the operands in every layout, and the call.
// SPDX-License-Identifier: MIT
//
// Sizes: batch, q_len, kv_len (absent: q_len), heads, kv_heads (absent: heads), d, dv (absent: d).
// Options: causal, left and right (a window; absent: no bound), intervals (1 causal by intervals
// alone, 2 documents, 3 a prefix, 4 a shared question with two per query), ragged, lens (lengths
// vary, some are 0; the longest are q_len and kv_len), page (tokens of one), pages (of the pool;
// absent: some more than are used, and sequences are then not rows of their own), v_table (pages of
// v in another order), softcap, sinks, alibi, lse, dropout, scales and float_sums (for e4m3
// alone), strided (1: heads before tokens, 2: 64 elements between tokens, 3: 1 element), in_place
// (out is q).
#include "tessera/ops/attention.h"

#include "bench/problems/attention_data.h"
#include "bench/problems/attention_layout.h"
#include "bench/problems/attention_sample.h"
#include "bench/problems/attention_shapes.h"
#include "bench/problems/builder.h"
#include "bench/problems/makers.h"

namespace tessera::bench {
namespace {

// Queries times heads of the largest test shape. Larger shapes belong to workloads, which exist
// for 16-bit types and, with scales, for e4m3.
constexpr int64_t kMostTested = 1 << 16;

// The argument that each operand belongs to, in order; intervals, which are nested, come last.
struct Slots {
  std::vector<TensorView AttentionArgs::*> members;
  bool has_intervals = false;
};

AttentionArgs args_of(const AttentionOptions& o, const Slots& slots,
                      std::span<const TensorView> views) {
  const AttentionScalars scalars = attention_scalars(o);
  AttentionArgs args{};
  for (size_t i = 0; i < slots.members.size(); ++i) args.*slots.members[i] = views[i];
  if (o.is_in_place) args.out = args.q;
  args.mask = {.left = o.left, .right = o.right};
  if (slots.has_intervals) args.mask.intervals = views.back();
  args.scale = scalars.scale;
  args.softcap = scalars.softcap;
  args.sums_in_float = o.has_float_sums;
  args.dropout = {.rate = scalars.dropout_rate, .seed = kDropoutSeed};
  return args;
}

class Maker {
 public:
  Maker(RowKey key, Builder& b, const AttentionOptions& o, const AttentionLayout& layout)
      : key_(key), b_(b), o_(o), layout_(layout) {}

  Slots add_all() {
    Operand& q = add_queries("q", o_.is_in_place ? Role::in_out : Role::input, key_.in, o_.d,
                             &AttentionArgs::q);
    if (o_.is_in_place) q.bound = attention_bound(key_, o_);
    fill_queries(q, o_, layout_, b_.random());
    fill_keys(add_keys("k", o_.d, &AttentionArgs::k), o_, layout_, b_.random());
    fill_values(add_keys("v", o_.dv, &AttentionArgs::v), o_, layout_, b_.random());
    if (!o_.is_in_place) {
      add_queries("out", Role::output, key_.out, o_.dv, &AttentionArgs::out).bound =
          attention_bound(key_, o_);
    }
    if (o_.has_lse) add_lse();
    add_per_head();
    add_lengths();
    if (o_.is_paged()) add_tables();
    if (o_.has_scales) add_scales();
    if (o_.intervals != 0) add_intervals();
    return slots_;
  }

 private:
  using Member = TensorView AttentionArgs::*;

  Operand& add(Operand& operand, Member member) {
    slots_.members.push_back(member);
    return operand;
  }

  // Rows of heads, `lead` times; without a first axis if lead is negative.
  Operand& add_rows(std::string_view name, Role role, DType dtype, int64_t lead, int64_t rows,
                    int64_t heads, int64_t cols) {
    const int64_t gap = o_.strided == 2 ? 64 : o_.strided == 3 ? 1 : 0;
    std::vector<int64_t> shape{rows, heads, cols};
    std::vector<int64_t> strides{heads * cols + gap, cols, 1};
    if (o_.strided == 1) strides = {cols, rows * cols, 1};
    const int64_t count = rows * (heads * cols + gap);
    if (lead < 0) return b_.strided(name, role, dtype, shape, strides, count);
    shape.insert(shape.begin(), lead);
    strides.insert(strides.begin(), count);
    return b_.strided(name, role, dtype, shape, strides, lead * count);
  }

  Operand& add_queries(std::string_view name, Role role, DType dtype, int64_t cols, Member member) {
    const int64_t rows = o_.is_ragged ? layout_.num_tokens() : o_.q_len;
    const int64_t lead = o_.is_ragged ? -1 : o_.batch;
    Operand& operand = add_rows(name, role, dtype, lead, rows, o_.heads, cols);
    operand.is_per_row = !o_.is_ragged;
    return add(operand, member);
  }

  Operand& add_keys(std::string_view name, int64_t cols, Member member) {
    if (o_.is_paged()) {
      return add(
          add_rows(name, Role::input, key_.in, layout_.num_pages(), o_.page, o_.kv_heads, cols),
          member);
    }
    const int64_t rows = o_.is_ragged ? layout_.num_keys() : o_.kv_len;
    const int64_t lead = o_.is_ragged ? -1 : o_.batch;
    Operand& operand = add_rows(name, Role::input, key_.in, lead, rows, o_.kv_heads, cols);
    operand.is_per_row = !o_.is_ragged;
    return add(operand, member);
  }

  void add_lse() {
    std::vector<int64_t> shape{o_.batch, o_.heads, o_.q_len};
    if (o_.is_ragged) shape = {o_.heads, layout_.num_tokens()};
    Operand& lse = b_.dense("lse", Role::output, DType::f32, shape, lse_bound(key_, o_));
    lse.is_per_row = !o_.is_ragged;
    add(lse, &AttentionArgs::lse);
  }

  void add_per_head() {
    const Random random = b_.random();
    if (o_.has_sinks) {
      fill_sinks(add(b_.dense("sinks", Role::input, DType::f32, {o_.heads}), &AttentionArgs::sinks),
                 o_, random);
    }
    if (o_.has_alibi) {
      fill_slopes(add(b_.dense("alibi_slopes", Role::input, DType::f32, {o_.heads}),
                      &AttentionArgs::alibi_slopes),
                  o_);
    }
  }

  void add_starts(std::string_view name, Member member, int64_t AttentionSequence::*begin,
                  int64_t total) {
    fill_vector(add(b_.dense(name, Role::input, DType::i32, {o_.batch + 1}), member),
                [&](int64_t s) {
                  if (s == o_.batch) return static_cast<float>(total);
                  return static_cast<float>(layout_.sequences()[static_cast<size_t>(s)].*begin);
                });
  }

  void add_lengths() {
    if (o_.is_ragged) {
      add_starts("q_starts", &AttentionArgs::q_starts, &AttentionSequence::q_begin,
                 layout_.num_tokens());
    }
    if (o_.is_ragged && !o_.is_paged()) {
      add_starts("kv_starts", &AttentionArgs::kv_starts, &AttentionSequence::kv_begin,
                 layout_.num_keys());
    }
    if (!o_.is_paged() && (o_.is_ragged || !o_.has_lens)) return;
    Operand& lens =
        add(b_.dense("kv_lens", Role::input, DType::i32, {o_.batch}), &AttentionArgs::kv_lens);
    lens.is_per_row = !o_.is_ragged;
    fill_vector(lens, [&](int64_t s) {
      return static_cast<float>(layout_.sequences()[static_cast<size_t>(s)].kv_len);
    });
  }

  // Entries beyond a sequence stay poisoned.
  void add_table(std::string_view name, Member member, bool is_v) {
    Operand& table =
        add(b_.dense(name, Role::input, DType::i32, {o_.batch, o_.max_pages()}), member);
    table.is_per_row = !o_.is_ragged;
    if (table.host.size_bytes() == 0) return;
    for (int64_t s = 0; s < o_.batch; ++s) {
      const int64_t kv_len = layout_.sequences()[static_cast<size_t>(s)].kv_len;
      for (int64_t t = 0; t < kv_len; t += o_.page) {
        const int64_t place = table.offset + s * o_.max_pages() + t / o_.page;
        table.host.view().as<int32_t>()[place] = static_cast<int32_t>(layout_.page_of(s, t, is_v));
      }
    }
  }

  void add_tables() {
    add_table("k_page_table", &AttentionArgs::k_page_table, false);
    if (o_.has_v_table) add_table("v_page_table", &AttentionArgs::v_page_table, true);
  }

  void add_scales() {
    constexpr std::string_view kNames[] = {"q_scale", "k_scale", "v_scale"};
    constexpr Member kMembers[] = {&AttentionArgs::q_scale, &AttentionArgs::k_scale,
                                   &AttentionArgs::v_scale};
    for (size_t i = 0; i < 3; ++i) {
      Operand& scale =
          add(b_.dense(kNames[i], Role::input, DType::f32, {o_.batch, o_.kv_heads}), kMembers[i]);
      scale.is_per_row = !o_.is_ragged;
      fill_quant_scale(scale, o_, static_cast<int>(i));
    }
  }

  void add_intervals() {
    const int64_t n = layout_.num_intervals();
    std::vector<int64_t> shape{o_.batch, o_.q_len, n, 2};
    if (o_.is_ragged) shape = {layout_.num_tokens(), n, 2};
    Operand& intervals = b_.dense("intervals", Role::input, DType::i32, shape);
    intervals.is_per_row = !o_.is_ragged;
    slots_.has_intervals = true;
    if (intervals.host.size_bytes() == 0) return;
    int32_t* to = intervals.host.view().as<int32_t>() + intervals.offset;
    for (const AttentionSequence& sequence : layout_.sequences()) {
      for (int64_t i = 0; i < sequence.q_len; ++i) {
        const KeyRanges ranges = layout_.intervals_of(sequence, i);
        for (int64_t r = 0; r < n; ++r) {
          *to++ = static_cast<int32_t>(ranges[static_cast<size_t>(r)].begin);
          *to++ = static_cast<int32_t>(ranges[static_cast<size_t>(r)].end);
        }
      }
    }
  }

  RowKey key_;
  Builder& b_;
  const AttentionOptions& o_;
  const AttentionLayout& layout_;
  Slots slots_;
};

double num_bytes(RowKey key, const AttentionOptions& o, const AttentionLayout& layout) {
  const int64_t q = layout.num_tokens() * o.heads, k = layout.num_keys() * o.kv_heads;
  return static_cast<double>(storage_bytes(key.in, q * o.d + k * (o.d + o.dv)) +
                             storage_bytes(key.out, q * o.dv));
}

Problem make_attention(RowKey key, const Shape& shape, Fill fill, uint64_t seed) {
  Builder b(shape, fill, seed,
            {"batch",   "q_len",     "kv_len",   "heads",     "kv_heads", "d",    "dv",
             "causal",  "left",      "right",    "ragged",    "lens",     "page", "pages",
             "v_table", "intervals", "alibi",    "softcap",   "sinks",    "lse",  "dropout",
             "strided", "scales",    "in_place", "float_sums"});
  const AttentionOptions o = attention_options(shape, fill);
  const AttentionLayout layout(o, seed);
  const Slots slots = Maker(key, b, o, layout).add_all();
  const auto call = [=](std::span<const TensorView> views, const Context& ctx) {
    attention_prefill(args_of(o, slots, views), ctx);
  };
  const double flops =
      2.0 * layout.num_pairs() * static_cast<double>(o.heads) * static_cast<double>(o.d + o.dv);
  // The problem's rows are sequences if each lies by itself or has its pages in a pool of fixed
  // size. Which weights are dropped depends on a sequence's index in the batch.
  const bool has_rows = !o.is_ragged && !o.has_dropout && (!o.is_paged() || o.pages > 0);
  Problem problem = b.finish(call, flops, has_rows ? "batch" : "");
  problem.bytes = num_bytes(key, o, layout);
  problem.is_supported = [=](std::span<const TensorView> views, const Context& ctx) {
    return supports(args_of(o, slots, views), ctx);
  };
  if (can_sample(o)) {
    problem.sample = [=](const Problem& whole) { return sample_attention(o, layout, whole); };
  }
  return problem;
}

bool attention_fits(RowKey key, const Shape& shape) {
  const bool has_codes = key.in == DType::e4m3;
  const bool wants_codes = value_of(shape, "scales") != 0 || value_of(shape, "float_sums") != 0;
  if (wants_codes && !has_codes) return false;
  if (value_of(shape, "in_place") != 0 && key.in != key.out) return false;
  if (value_of(shape, "batch", 1) * value_of(shape, "q_len") * value_of(shape, "heads") >=
      kMostTested) {
    return has_codes ? value_of(shape, "scales") != 0 : key.in != DType::f32;
  }
  return true;
}

}  // namespace

ProblemMaker attention_prefill_maker() {
  const std::vector<RowKey> keys{{DType::bf16, DType::bf16},
                                 {DType::f16, DType::f16},
                                 {DType::f32, DType::f32},
                                 {DType::e4m3, DType::bf16},
                                 {DType::e4m3, DType::f16}};
  return {"attention_prefill",     &make_attention,       &attention_fits, keys,
          attention_test_shapes(), attention_workloads(), "attention"};
}

}  // namespace tessera::bench
