// What attention_prefill and attention_decode require, one function per group of arguments.
// SPDX-License-Identifier: MIT
#include "ops/attention_check.h"

#include <cmath>

#include "core/text.h"
#include "ops/kv_check.h"
#include "tessera/core/error.h"

namespace tessera::ops {
namespace {

constexpr DTypeSet kInputs = {DType::f32, DType::f16, DType::bf16, DType::e4m3};
constexpr std::string_view kPrefill = "attention_prefill";
constexpr std::string_view kDecode = "attention_decode";

// Tokens, or rows of pages, with heads: any strides, but the elements of a head are contiguous.
void check_heads(const Named& heads, int rank) {
  expect_rank(heads, rank);
  const TensorView& view = heads.view;
  if (view.size(-1) > 1 && view.stride(-1) != 1) {
    fail(concat(heads.what, " is ", to_string(view),
                "; the elements of a head must be contiguous: make them so with copy"));
  }
  if (view.size(-1) < 1 || view.size(-2) * view.size(-1) > kMaxCols) {
    fail(concat(heads.what, " is ", to_string(view),
                "; a head must have at least 1 element, and a token at most ", kMaxCols));
  }
  for (int d = 0; d < rank; ++d) {
    if (view.size(d) <= kMaxCols) continue;
    fail(concat(heads.what, " is ", to_string(view), "; an axis may have at most ", kMaxCols,
                " elements: split it"));
  }
}

void check_head_counts(const Named& q, const Named& k) {
  if (k.view.size(-1) != q.view.size(-1)) {
    fail(concat(k.what, " has head_dim ", k.view.size(-1), " and q has ", q.view.size(-1),
                "; they must agree"));
  }
  if (k.view.size(-2) < 1 || q.view.size(-2) % k.view.size(-2) != 0) {
    fail(concat(q.what, " has ", q.view.size(-2), " heads and k has ", k.view.size(-2),
                "; the first must be a multiple of the second"));
  }
}

void check_page_size(const Named& pages) {
  if (pages.view.size(1) >= 1) return;
  fail(concat(pages.what, " is ", to_string(pages.view), "; page_size must be at least 1"));
}

// i32 and contiguous.
void check_counts(const Named& counts, const Named& q) {
  expect_tensor(counts, {DType::i32}, q);
  expect_rank(counts, 1);
  expect_contiguous(counts);
}

void check_lens(const Named& lens, const Named& q, int64_t batch) {
  check_counts(lens, q);
  if (lens.view.size(0) == batch) return;
  fail(concat(lens.what, " is ", to_string(lens.view), "; for ", batch,
              " sequences it must have one element each"));
}

void check_table(const Named& table, const Named& q, int64_t batch) {
  expect_tensor(table, {DType::i32}, q);
  expect_rank(table, 2);
  if (table.view.size(0) != batch) {
    fail(concat(table.what, " is ", to_string(table.view), "; for ", batch,
                " sequences it must have one row each"));
  }
  if (table.view.size(1) > 1 && table.view.stride(1) != 1) {
    fail(concat(table.what, " is ", to_string(table.view),
                "; the pages of a sequence must be contiguous: make them so with copy"));
  }
}

void check_scale(std::string_view op, float scale, float softcap) {
  if (!(scale >= 0.0f) || !std::isfinite(scale)) {
    fail(concat(op, ": scale is ", scale,
                "; it must be finite and positive, or 0 for 1 / sqrt(head_dim)"));
  }
  if (!(softcap >= 0.0f) || !std::isfinite(softcap)) {
    fail(concat(op, ": softcap is ", softcap, "; it must be finite and positive, or 0 for none"));
  }
}

// Refuses a tensor that belongs to another layout than that of q and k.
void refuse_given(const Named& tensor, std::string_view reason) {
  if (!is_given(tensor.view)) return;
  fail(concat(tensor.what, " is ", to_string(tensor.view), "; ", reason, ": leave it out"));
}

// The tensors of a prefill by name, and how they are laid out.
struct Prefill {
  const AttentionArgs& args;
  Named q{"attention_prefill: q", args.q};
  Named k{"attention_prefill: k", args.k};
  Named v{"attention_prefill: v", args.v};
  Named out{"attention_prefill: out", args.out};
  Named lse{"attention_prefill: lse", args.lse};
  Named q_starts{"attention_prefill: q_starts", args.q_starts};
  Named kv_starts{"attention_prefill: kv_starts", args.kv_starts};
  Named kv_lens{"attention_prefill: kv_lens", args.kv_lens};
  Named k_table{"attention_prefill: k_page_table", args.k_page_table};
  Named v_table{"attention_prefill: v_page_table", args.v_page_table};

  bool is_ragged() const { return args.q.rank == 3; }
  bool is_paged() const { return is_given(args.k_page_table); }
  int64_t batch() const { return is_ragged() ? args.q_starts.size(0) - 1 : args.q.size(0); }
};

void check_q(const Prefill& c) {
  expect_tensor(c.q, kInputs);
  if (c.args.q.rank != 3 && c.args.q.rank != 4) {
    fail(concat(c.q.what, " is ", to_string(c.args.q), ", of rank ", c.args.q.rank,
                "; its rank must be 4, or 3 for sequences one after the other with q_starts"));
  }
  check_heads(c.q, c.args.q.rank);
  if (!c.is_ragged()) {
    refuse_given(c.q_starts, "q of rank 4 has sequences of one length");
    return;
  }
  if (!is_given(c.args.q_starts)) {
    fail(concat(c.q.what, " is ", to_string(c.args.q),
                " and q_starts is missing; rank 3 needs it to say where sequences begin"));
  }
  check_counts(c.q_starts, c.q);
  if (c.args.q_starts.size(0) < 1) {
    fail(concat(c.q_starts.what, " is ", to_string(c.args.q_starts),
                "; it must have one element more than there are sequences"));
  }
}

void check_kv(const Prefill& c) {
  const int rank = c.is_paged() || !c.is_ragged() ? 4 : 3;
  for (const Named& kv : {c.k, c.v}) {
    expect_tensor(kv, kInputs, c.q);
    expect_dtype_of(kv, c.q);
    if (kv.view.rank == 4 && rank == 3) {
      fail(concat(kv.what, " is ", to_string(kv.view), " and q is ", to_string(c.args.q),
                  "; with q of rank 3 it must have rank 3, or be pages with k_page_table"));
    }
    check_heads(kv, rank);
  }
  check_head_counts(c.q, c.k);
  const bool has_own_pages = c.is_paged() && is_given(c.args.v_page_table);
  for (int axis = has_own_pages ? 1 : 0; axis < rank - 1; ++axis) {
    if (c.args.v.size(axis) == c.args.k.size(axis)) continue;
    fail(concat(c.v.what, " is ", to_string(c.args.v), " and k is ", to_string(c.args.k),
                "; they must agree in all but the last axis",
                axis == 0 && c.is_paged() ? ", or v have a v_page_table" : ""));
  }
}

void check_pages(const Prefill& c) {
  check_page_size(c.k);
  check_table(c.k_table, c.q, c.batch());
  if (is_given(c.args.v_page_table)) {
    check_table(c.v_table, c.q, c.batch());
    expect_shape_of(c.v_table, c.k_table);
  }
  if (!is_given(c.args.kv_lens)) {
    fail(concat(c.k_table.what, " is ", to_string(c.args.k_page_table),
                " and kv_lens is missing; pages need it to say where sequences end"));
  }
  check_lens(c.kv_lens, c.q, c.batch());
  refuse_given(c.kv_starts, "k and v lie in pages, where k_page_table says");
}

// How k and v are divided into sequences.
void check_sequences(const Prefill& c) {
  if (c.is_paged()) return check_pages(c);
  refuse_given(c.v_table, "there is no k_page_table, so k and v do not lie in pages");
  if (!c.is_ragged()) {
    refuse_given(c.kv_starts, "k of rank 4 has sequences of one length");
    if (c.args.k.size(0) != c.batch()) {
      fail(concat(c.k.what, " is ", to_string(c.args.k), " and q is ", to_string(c.args.q),
                  "; both must have the same number of sequences"));
    }
    if (is_given(c.args.kv_lens)) check_lens(c.kv_lens, c.q, c.batch());
    return;
  }
  refuse_given(c.kv_lens, "kv_starts says how long the sequences of k are");
  if (!is_given(c.args.kv_starts)) {
    fail(concat(c.k.what, " is ", to_string(c.args.k),
                " and kv_starts is missing; rank 3 needs it to say where sequences begin"));
  }
  check_counts(c.kv_starts, c.q);
  expect_shape_of(c.kv_starts, c.q_starts);
}

void check_shape_of_out(const Prefill& c) {
  check_heads(c.out, c.args.q.rank);
  bool is_right = c.args.out.size(-1) == c.args.v.size(-1);
  for (int d = 0; d < c.args.q.rank - 1; ++d) is_right &= c.args.out.size(d) == c.args.q.size(d);
  if (is_right) return;
  fail(concat(c.out.what, " is ", to_string(c.args.out), "; for q of ", to_string(c.args.q),
              " it must have the same axes but the last, which is ", c.args.v.size(-1), " as v's"));
}

void check_lse(const Prefill& c) {
  if (!is_given(c.args.lse)) return;
  expect_tensor(c.lse, {DType::f32}, c.q);
  expect_rank(c.lse, c.args.q.rank - 1);
  const TensorView& lse = c.args.lse;
  if (lse.size(-1) != c.args.q.size(-3) || lse.size(-2) != c.args.q.size(-2) ||
      (lse.rank == 3 && lse.size(0) != c.args.q.size(0))) {
    fail(concat(c.lse.what, " is ", to_string(lse), "; for q of ", to_string(c.args.q),
                " it must be [", c.is_ragged() ? "" : "batch, ", "num_heads, ",
                c.is_ragged() ? "tokens]" : "q_len]"));
  }
  expect_writable(c.lse);
  for (const Named& other : {c.q, c.k, c.v, c.out}) expect_apart(c.lse, other);
}

void check_out(const Prefill& c) {
  if (c.args.q.dtype == DType::e4m3) {
    expect_tensor(c.out, {DType::bf16, DType::f16}, c.q);
  } else {
    expect_tensor(c.out, kFloats, c.q);
    expect_dtype_of(c.out, c.q);
  }
  check_shape_of_out(c);
  expect_writable(c.out);
  expect_same_or_apart(c.out, c.q);
  expect_apart(c.out, c.k);
  expect_apart(c.out, c.v);
}

void check_intervals(const Prefill& c) {
  const TensorView& view = c.args.mask.intervals;
  if (!is_given(view)) return;
  const Named intervals{"attention_prefill: mask.intervals", view};
  expect_tensor(intervals, {DType::i32}, c.q);
  expect_rank(intervals, c.is_ragged() ? 3 : 4);
  const bool has_queries =
      view.size(-3) == c.args.q.size(-3) && (c.is_ragged() || view.size(0) == c.args.q.size(0));
  const int64_t count = view.size(-2);
  if (!has_queries || (count != 1 && count != 2) || view.size(-1) != 2) {
    fail(concat(intervals.what, " is ", to_string(view), "; for q of ", to_string(c.args.q),
                " it must be [", c.is_ragged() ? "tokens" : "batch, q_len",
                ", n, 2] with n of 1 or 2"));
  }
  if (view.stride(-1) == 1 && (count == 1 || view.stride(-2) == 2)) return;
  fail(concat(intervals.what, " is ", to_string(view),
              "; the intervals of a query must be contiguous: make them so with copy"));
}

// One float per head.
void check_per_head(const Prefill& c, const Named& tensor) {
  if (!is_given(tensor.view)) return;
  expect_tensor(tensor, {DType::f32}, c.q);
  expect_rank(tensor, 1);
  expect_one_each(tensor, c.args.q.size(-2), "head of q");
}

void check_quant_scale(const Prefill& c, const Named& scale) {
  if (!is_given(scale.view)) return;
  if (c.args.q.dtype != DType::e4m3) {
    fail(concat(scale.what, " is given and q is ", name(c.args.q.dtype),
                "; scales are for e4m3: leave it out"));
  }
  expect_tensor(scale, {DType::f32}, c.q);
  expect_rank(scale, 2);
  if (scale.view.size(0) != c.batch() || scale.view.size(1) != c.args.k.size(-2)) {
    fail(concat(scale.what, " is ", to_string(scale.view), "; it must be [", c.batch(), ", ",
                c.args.k.size(-2), "], one for each sequence and KV head"));
  }
  expect_contiguous(scale);
}

void check_dropout(const AttentionDropout& dropout) {
  if (dropout.rate >= 0.0f && dropout.rate < 1.0f) return;
  fail(concat(kPrefill, ": dropout.rate is ", dropout.rate, "; it must be 0 to below 1"));
}

constexpr KvNames kDecodeNames{"attention_decode: k_pages",    "attention_decode: v_pages",
                               "attention_decode: k_scales",   "attention_decode: v_scales",
                               "attention_decode: k_tail",     "attention_decode: tails",
                               "attention_decode: page_table", "attention_decode: seq_lens"};
constexpr int64_t kMaxNewTokens = 16;

void check_decode_kv(const DecodeAttentionArgs& args, const Named& q) {
  const Named k{kDecodeNames.k_pages, args.kv.k_pages};
  const Named v{kDecodeNames.v_pages, args.kv.v_pages};
  check_paged_kv(args.kv, kDecodeNames, q);
  for (const Named& pages : {k, v}) {
    if (kv_format(pages.view, {}) == KvFormat::plain) expect_dtype_of(pages, q);
  }
  check_head_counts(q, k);
  if (args.q.size(0) != args.kv.seq_lens.size(0)) {
    fail(concat(q.what, " is ", to_string(args.q), " and seq_lens is ", to_string(args.kv.seq_lens),
                "; there must be one part for each sequence: use attention_prefill for chunks"));
  }
  if (args.q.rank == 3 || (args.q.size(1) >= 1 && args.q.size(1) <= kMaxNewTokens)) return;
  fail(concat(q.what, " is ", to_string(args.q), "; it may have 1 to ", kMaxNewTokens,
              " tokens of a sequence: use attention_prefill for more"));
}

void check_decode_per_head(const Named& values, const Named& q) {
  if (!is_given(values.view)) return;
  expect_tensor(values, {DType::f32}, q);
  expect_rank(values, 1);
  expect_one_each(values, q.view.size(-2), "head of q");
}

void check_decode_lse(const DecodeAttentionArgs& args, const Named& q) {
  const Named lse{"attention_decode: lse", args.lse};
  if (!is_given(args.lse)) return;
  expect_tensor(lse, {DType::f32}, q);
  expect_rank(lse, args.q.rank - 1);
  expect_writable(lse);
  const bool fits = args.lse.size(0) == args.q.size(0) && args.lse.size(1) == args.q.size(-2) &&
                    (args.q.rank == 3 || args.lse.size(2) == args.q.size(1));
  if (fits) return;
  fail(concat(lse.what, " is ", to_string(args.lse), " and q is ", to_string(args.q),
              "; it must be [batch, num_heads], with q_len behind where q has it"));
}

// Lists per sequence, or per token of it, and their lengths.
void check_list(const Named& lists, const Named& counts, const Named& q, int rank) {
  if (!is_given(lists.view) && !is_given(counts.view)) return;
  expect_tensor(lists, {DType::i32}, q);
  expect_tensor(counts, {DType::i32}, q);
  expect_rank(lists, rank);
  const int64_t batch = q.view.size(0), q_len = q.view.rank == 4 ? q.view.size(1) : 1;
  expect_one_each(counts, rank == 2 ? batch : batch * q_len, "list");
  const TensorView& view = lists.view;
  const bool is_side_by_side = view.size(-1) <= 1 || view.stride(-1) == 1;
  if (view.size(0) == batch && (rank == 2 || view.size(1) == q_len) && is_side_by_side) return;
  fail(concat(lists.what, " is ", to_string(view), " and q is ", to_string(q.view), "; there must ",
              "be a list for each sequence", rank == 3 ? " and token" : "",
              ", its entries side by side"));
}

}  // namespace

void check_attention(const AttentionArgs& args) {
  const Prefill c{args};
  check_q(c);
  check_kv(c);
  check_sequences(c);
  check_out(c);
  check_lse(c);
  check_scale(kPrefill, args.scale, args.softcap);
  check_intervals(c);
  check_per_head(c, {"attention_prefill: sinks", args.sinks});
  check_per_head(c, {"attention_prefill: alibi_slopes", args.alibi_slopes});
  check_quant_scale(c, {"attention_prefill: q_scale", args.q_scale});
  check_quant_scale(c, {"attention_prefill: k_scale", args.k_scale});
  check_quant_scale(c, {"attention_prefill: v_scale", args.v_scale});
  check_dropout(args.dropout);
}

void check_attention_decode(const DecodeAttentionArgs& args) {
  const Named q{"attention_decode: q", args.q};
  const Named out{"attention_decode: out", args.out};
  const Named tree{"attention_decode: tree", args.tree};
  expect_tensor(q, kFloats);
  check_heads(q, args.q.rank == 4 ? 4 : 3);
  check_decode_kv(args, q);
  expect_tensor(out, kFloats, q);
  expect_dtype_of(out, q);
  check_heads(out, args.q.rank);
  expect_shape_of(out, q);
  expect_writable(out);
  expect_same_or_apart(out, q);
  expect_apart(out, {kDecodeNames.k_pages, args.kv.k_pages});
  expect_apart(out, {kDecodeNames.v_pages, args.kv.v_pages});
  check_decode_lse(args, q);
  check_decode_per_head({"attention_decode: sinks", args.sinks}, q);
  check_decode_per_head({"attention_decode: alibi_slopes", args.alibi_slopes}, q);
  if (is_given(args.tree)) {
    expect_tensor(tree, {DType::i32}, q);
    expect_one_each(tree, args.q.size(0) * (args.q.rank == 4 ? args.q.size(1) : 1), "token of q");
  }
  check_list({"attention_decode: blocks", args.blocks},
             {"attention_decode: num_blocks", args.num_blocks}, q, 2);
  check_list({"attention_decode: keys", args.keys}, {"attention_decode: num_keys", args.num_keys},
             q, 3);
  check_scale(kDecode, args.scale, args.softcap);
  if (args.window >= 0) return;
  fail(concat(kDecode, ": window is ", args.window,
              "; it counts the keys a query sees, or is 0 for all of them"));
}

}  // namespace tessera::ops
