// attention_prefill and attention_decode: what they take, and where they run.
// SPDX-License-Identifier: MIT
#include "tessera/ops/attention.h"

#include <cmath>

#include "core/text.h"
#include "cpu/attention.h"
#include "ops/check.h"
#include "ops/dispatch.h"

namespace tessera {

// Rows are keyed by one type: q, out and the pages share it.
static RowKey key_of(const PrefillAttentionArgs& args) { return {args.q.dtype, args.out.dtype}; }
static RowKey key_of(const DecodeAttentionArgs& args) { return {args.q.dtype, args.out.dtype}; }

namespace {

using namespace ops;

// The words for the tensors of one of the two operations; they take the same rules.
struct Words {
  std::string_view op, q, out, k_pages, v_pages, page_table, seq_lens;
};
constexpr Words kPrefillWords = {"attention_prefill",          "attention_prefill: q",
                                 "attention_prefill: out",     "attention_prefill: k_pages",
                                 "attention_prefill: v_pages", "attention_prefill: page_table",
                                 "attention_prefill: seq_lens"};
constexpr Words kDecodeWords = {"attention_decode",          "attention_decode: q",
                                "attention_decode: out",     "attention_decode: k_pages",
                                "attention_decode: v_pages", "attention_decode: page_table",
                                "attention_decode: seq_lens"};

// q or out: tokens and heads may lie anywhere, the elements of one head side by side.
void check_heads(const Named& heads) {
  expect_rank(heads, 3);
  if (heads.view.size(2) > 1 && heads.view.stride(2) != 1) {
    fail(concat(heads.what, " is ", to_string(heads.view),
                "; the elements of a head must be contiguous: make them so with copy"));
  }
  if (heads.view.size(2) < 1 || heads.view.size(1) * heads.view.size(2) > kMaxCols) {
    fail(concat(heads.what, " is ", to_string(heads.view),
                "; head_dim must be at least 1, and a token may have at most ", kMaxCols,
                " elements"));
  }
}

void check_pages(const Words& words, const Named& q, const PagedKv& kv) {
  const Named k_pages{words.k_pages, kv.k_pages};
  const Named v_pages{words.v_pages, kv.v_pages};
  for (const Named& pages : {k_pages, v_pages}) {
    expect_tensor(pages, kFloats, q);
    expect_dtype_of(pages, q);
    expect_rank(pages, 4);
    expect_contiguous(pages);
  }
  expect_shape_of(v_pages, k_pages);
  if (kv.k_pages.size(1) < 1) {
    fail(concat(words.k_pages, " is ", to_string(kv.k_pages), "; page_size must be at least 1"));
  }
  const int64_t num_kv_heads = kv.k_pages.size(2);
  if (kv.k_pages.size(3) != q.view.size(2)) {
    fail(concat(words.k_pages, " has head_dim ", kv.k_pages.size(3), " and q has ", q.view.size(2),
                "; they must agree"));
  }
  if (num_kv_heads < 1 || q.view.size(1) % num_kv_heads != 0) {
    fail(concat(words.q, " has ", q.view.size(1), " heads and k_pages ", num_kv_heads,
                "; the first must be a multiple of the second"));
  }
}

void check_tables(const Words& words, const Named& q, const PagedKv& kv) {
  const Named page_table{words.page_table, kv.page_table};
  const Named seq_lens{words.seq_lens, kv.seq_lens};
  expect_tensor(seq_lens, {DType::i32}, q);
  expect_rank(seq_lens, 1);
  expect_contiguous(seq_lens);
  expect_tensor(page_table, {DType::i32}, q);
  expect_rank(page_table, 2);
  if (kv.page_table.size(0) != kv.seq_lens.size(0)) {
    fail(concat(words.page_table, " is ", to_string(kv.page_table), " and seq_lens is ",
                to_string(kv.seq_lens), "; both must have one row for each sequence"));
  }
  if (kv.page_table.size(1) > 1 && kv.page_table.stride(1) != 1) {
    fail(concat(words.page_table, " is ", to_string(kv.page_table),
                "; the pages of a sequence must be contiguous: make them so with copy"));
  }
}

void check_scores(const Words& words, const AttentionScores& scores) {
  if (!std::isfinite(scores.scale)) {
    fail(concat(words.op, ": scale is ", scores.scale,
                "; it must be finite, or 0 for 1 / sqrt(head_dim)"));
  }
  if (scores.window < 0) {
    fail(concat(words.op, ": window is ", scores.window,
                "; it counts the keys a query sees, or is 0 for all of them"));
  }
  if (!(scores.softcap >= 0.0f) || !std::isfinite(scores.softcap)) {
    fail(concat(words.op, ": softcap is ", scores.softcap,
                "; it must be finite and positive, or 0 for none"));
  }
}

// All but how the tokens of q belong to sequences.
template <class Args>
void check_common(const Words& words, const Args& args) {
  const Named q{words.q, args.q};
  const Named out{words.out, args.out};
  expect_tensor(q, kFloats);
  check_heads(q);
  check_pages(words, q, args.kv);
  check_tables(words, q, args.kv);
  expect_tensor(out, kFloats, q);
  expect_dtype_of(out, q);
  check_heads(out);
  expect_shape_of(out, q);
  expect_writable(out);
  expect_same_or_apart(out, q);
  expect_apart(out, {words.k_pages, args.kv.k_pages});
  expect_apart(out, {words.v_pages, args.kv.v_pages});
  check_scores(words, args.scores);
}

void check_prefill(const PrefillAttentionArgs& args) {
  check_common(kPrefillWords, args);
  const Named q{kPrefillWords.q, args.q};
  const Named starts{"attention_prefill: query_starts", args.query_starts};
  expect_tensor(starts, {DType::i32}, q);
  expect_rank(starts, 1);
  expect_contiguous(starts);
  if (args.query_starts.size(0) != args.kv.seq_lens.size(0) + 1) {
    fail(concat(starts.what, " is ", to_string(args.query_starts), "; for ",
                args.kv.seq_lens.size(0), " sequences it must have ", args.kv.seq_lens.size(0) + 1,
                " elements, the last the number of tokens"));
  }
}

void check_decode(const DecodeAttentionArgs& args) {
  check_common(kDecodeWords, args);
  if (args.q.size(0) == args.kv.seq_lens.size(0)) return;
  fail(concat("attention_decode: q is ", to_string(args.q), " and seq_lens is ",
              to_string(args.kv.seq_lens),
              "; there must be one token for each sequence: use attention_prefill for chunks"));
}

const Op<PrefillAttentionArgs>& prefill_op() {
  static const Op<PrefillAttentionArgs> op{
      "attention_prefill", &check_prefill, &cpu::attention_prefill, {}, {}};
  return op;
}

const Op<DecodeAttentionArgs>& decode_op() {
  static const Op<DecodeAttentionArgs> op{
      "attention_decode", &check_decode, &cpu::attention_decode, {}, {}};
  return op;
}

}  // namespace

void attention_prefill(const PrefillAttentionArgs& args, const Context& ctx) {
  run(prefill_op(), args, args.q.device, ctx);
}

void attention_decode(const DecodeAttentionArgs& args, const Context& ctx) {
  run(decode_op(), args, args.q.device, ctx);
}

bool supports(const PrefillAttentionArgs& args, const Context& ctx) {
  return is_supported(prefill_op(), args, args.q.device, ctx);
}

bool supports(const DecodeAttentionArgs& args, const Context& ctx) {
  return is_supported(decode_op(), args, args.q.device, ctx);
}

}  // namespace tessera
