// What attention_merge and attention_cascade require of their arguments.
// SPDX-License-Identifier: MIT
#include "core/text.h"
#include "ops/attention_cascade.h"
#include "ops/attention_check.h"
#include "ops/check.h"
#include "ops/kv_check.h"
#include "tessera/core/error.h"

namespace tessera::ops {
namespace {

void expect_heads_in_one_piece(const Named& t) {
  if (t.view.size(-1) < 1 || t.view.size(-1) > kMaxCols) {
    fail(concat(t.what, " is ", to_string(t.view), "; a head must have 1 to ", kMaxCols,
                " elements"));
  }
  if (t.view.size(-1) == 1 || t.view.stride(-1) == 1) return;
  fail(concat(t.what, " is ", to_string(t.view),
              "; the elements of a head must be contiguous: make them so with copy"));
}

// `lse` must have the axes of `of` without the last, with the tokens of a sequence after the heads;
// `first` is the axis of sequences in both.
void check_merge_lse(const Named& lse, const Named& of, int first, const Named& parts) {
  expect_tensor(lse, {DType::f32}, parts);
  expect_rank(lse, of.view.rank - 1);
  const bool has_q_axis = of.view.rank - first == 4;
  bool fits =
      lse.view.size(first) == of.view.size(first) && lse.view.size(first + 1) == of.view.size(-2);
  if (first == 1) fits &= lse.view.size(0) == of.view.size(0);
  if (has_q_axis) fits &= lse.view.size(-1) == of.view.size(-3);
  if (fits) return;
  fail(concat(lse.what, " is ", to_string(lse.view), " and ", of.what, " is ", to_string(of.view),
              "; it must be [", first == 1 ? "num_parts, " : "", "batch, num_heads",
              has_q_axis ? ", q_len]" : "]"));
}

void check_scratch(const Named& scratch, const Named& q, DType dtype, int64_t count) {
  expect_tensor(scratch, kFloats, q);
  if (scratch.view.dtype != dtype) {
    fail(concat(scratch.what, " is ", to_string(scratch.view), "; it must be ", name(dtype)));
  }
  expect_contiguous(scratch);
  if (scratch.view.num_elements() == count) return;
  fail(concat(scratch.what, " is ", to_string(scratch.view), " and q is ", to_string(q.view),
              "; it must have ", count, " elements: a part for each piece and one for own keys"));
}

void check_pieces(const CascadeAttentionArgs& args, const Named& q) {
  const Named lens{"attention_cascade: piece_lens", args.piece_lens};
  const Named table{"attention_cascade: page_table", args.page_table};
  expect_tensor(lens, {DType::i32}, q);
  expect_rank(lens, 1);
  if (!is_given(args.page_table)) return;
  expect_tensor(table, {DType::i32}, q);
  expect_rank(table, 2);
  if (args.page_table.size(0) == args.piece_lens.size(0)) return;
  fail(concat(table.what, " is ", to_string(args.page_table), " and piece_lens is ",
              to_string(args.piece_lens), "; both must have one entry for each piece"));
}

// Options that depend on a query's position after the shared keys are refused.
void refuse_positions(const DecodeAttentionArgs& own) {
  if (own.window != 0) {
    fail(concat("attention_cascade: own.window is ", own.window,
                "; every query sees every shared key: leave it out, or use attention_decode"));
  }
  if (!is_given(own.alibi_slopes)) return;
  fail(concat("attention_cascade: own.alibi_slopes is ", to_string(own.alibi_slopes),
              "; shared keys have no distance to a query: use attention_decode"));
}

void check_spacing(const Named& q) {
  const TensorView& t = q.view;
  if (t.rank == 3 || t.size(0) <= 1 || t.size(1) <= 1 || t.stride(0) == t.size(1) * t.stride(1)) {
    return;
  }
  fail(concat(q.what, " is ", to_string(t),
              "; its tokens must lie evenly apart: make them so with copy"));
}

}  // namespace

void check_attention_merge(const MergeAttentionArgs& args) {
  const Named parts{"attention_merge: parts", args.parts};
  const Named part_lses{"attention_merge: part_lses", args.part_lses};
  const Named out{"attention_merge: out", args.out};
  const Named lse{"attention_merge: lse", args.lse};
  expect_tensor(parts, kFloats);
  if (args.parts.rank != 4 && args.parts.rank != 5) {
    fail(concat(parts.what, " is ", to_string(args.parts), ", of rank ", args.parts.rank,
                "; its rank must be 4, or 5 with q_len"));
  }
  expect_heads_in_one_piece(parts);
  check_merge_lse(part_lses, parts, 1, parts);
  expect_tensor(out, kFloats, parts);
  expect_dtype_of(out, parts);
  expect_rank(out, args.parts.rank - 1);
  for (int axis = 0; axis < args.out.rank; ++axis) {
    if (args.out.size(axis) == args.parts.size(axis + 1)) continue;
    fail(concat(out.what, " is ", to_string(args.out), " and parts are ", to_string(args.parts),
                "; it must have the shape of one of them"));
  }
  expect_heads_in_one_piece(out);
  expect_writable(out);
  expect_apart(out, parts);
  expect_apart(out, part_lses);
  if (!is_given(args.lse)) return;
  check_merge_lse(lse, out, 0, parts);
  expect_writable(lse);
  for (const Named& other : {parts, part_lses, out}) expect_apart(lse, other);
}

void check_attention_cascade(const CascadeAttentionArgs& args) {
  const Named q{"attention_cascade: own.q", args.own.q};
  check_attention_decode(args.own);
  refuse_positions(args.own);
  check_spacing(q);
  check_pieces(args, q);
  const int64_t num_parts = args.piece_lens.size(0) + 1;
  const int64_t num_heads = args.own.q.num_elements() / args.own.q.size(-1);
  const Named parts{"attention_cascade: parts", args.parts};
  const Named part_lses{"attention_cascade: part_lses", args.part_lses};
  check_scratch(parts, q, args.own.q.dtype, num_parts * num_heads * args.own.q.size(-1));
  check_scratch(part_lses, q, DType::f32, num_parts * num_heads);
  const CascadeCalls calls = cascade_calls(args);
  check_attention(calls.shared);
  check_attention_decode(calls.own);
  check_attention_merge(calls.merge);
}

}  // namespace tessera::ops
