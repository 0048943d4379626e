// kv_append, kv_copy_pages and kv_gather: checks and dispatch.
// SPDX-License-Identifier: MIT
#include "tessera/ops/kv_cache.h"

#include "core/text.h"
#include "cpu/kv_cache.h"
#include "kernels/kv/rows.h"
#include "ops/check.h"
#include "ops/dispatch.h"
#include "ops/kv_check.h"

namespace tessera {

namespace {

using namespace ops;

constexpr DTypeSet kAnyType = {DType::f32, DType::f16, DType::bf16, DType::e4m3, DType::e5m2,
                               DType::i8,  DType::u8,  DType::i4,   DType::i32,  DType::i64};

void check_heads(const Named& heads) {
  expect_rank(heads, 3);
  if (heads.view.size(2) <= 1 || heads.view.stride(2) == 1) return;
  fail(concat(heads.what, " is ", to_string(heads.view),
              "; the elements of a head must be contiguous: make them so with copy"));
}

// Tokens must have the heads of a page.
void expect_heads_of(const Named& tokens, const Named& pages) {
  if (tokens.view.size(1) == pages.view.size(2) && tokens.view.size(2) == pages.view.size(3))
    return;
  fail(concat(tokens.what, " is ", to_string(tokens.view), " and ", pages.what, " is ",
              to_string(pages.view), "; they must agree in num_kv_heads and head_dim"));
}

// Plain pages store tokens unchanged, so the types must agree.
void expect_plain_dtype_of(const Named& pages, const Named& tokens) {
  if (kv_format(pages.view, {}) == KvFormat::plain) expect_dtype_of(pages, tokens);
}

void check_rope(const KvAppendArgs& args, const Named& k) {
  if (!args.rope) return;
  const Named q{"kv_append: rope.q", args.rope->q};
  const Named positions{"kv_append: rope.positions", args.rope->positions};
  const Named table{"kv_append: rope.table", args.rope->table};
  expect_tensor(q, kFloats, k);
  check_heads(q);
  expect_dtype_of(q, k);
  expect_writable(q);
  expect_writable(k);
  expect_apart(q, k);
  if (args.rope->q.size(0) != args.k.size(0) || args.rope->q.size(2) != args.k.size(2)) {
    fail(concat(q.what, " is ", to_string(args.rope->q), " and k is ", to_string(args.k),
                "; they must agree in tokens and head_dim"));
  }
  expect_tensor(positions, kIndices, k);
  expect_one_each(positions, args.k.size(0), "token of k");
  expect_tensor(table, {DType::f32}, k);
  expect_rank(table, 2);
  expect_contiguous(table);
  const int64_t rotary_dim = args.rope->table.size(1);
  if (rotary_dim % 2 == 0 && rotary_dim <= args.k.size(2)) return;
  fail(concat(table.what, " is ", to_string(args.rope->table), "; its width, the rotated part of ",
              "a head, must be even and at most head_dim, ", args.k.size(2)));
}

void check_append(const KvAppendArgs& args) {
  const Named k{"kv_append: k", args.k};
  const Named v{"kv_append: v", args.v};
  const Named k_pages{"kv_append: k_pages", args.k_pages};
  const Named v_pages{"kv_append: v_pages", args.v_pages};
  const Named k_tail{"kv_append: k_tail", args.k_tail};
  const Named slots{"kv_append: slots", args.slots};
  const Named tail_slots{"kv_append: tail_slots", args.tail_slots};
  expect_tensor(k, kFloats);
  expect_tensor(v, kFloats, k);
  check_heads(k);
  check_heads(v);
  expect_dtype_of(v, k);
  expect_shape_of(v, k);
  check_kv_pages(k_pages, {"kv_append: k_scales", args.k_scales}, k, true);
  check_kv_pages(v_pages, {"kv_append: v_scales", args.v_scales}, k, false);
  expect_shape_of(v_pages, k_pages);
  expect_plain_dtype_of(k_pages, k);
  expect_plain_dtype_of(v_pages, k);
  expect_heads_of(k, k_pages);
  expect_apart(v_pages, k_pages);
  for (const Named& written : {k_pages, v_pages}) {
    expect_writable(written);
    expect_apart(written, k);
    expect_apart(written, v);
  }
  expect_tensor(slots, kIndices, k);
  expect_one_each(slots, args.k.size(0), "token of k");
  check_kv_tail(k_pages, args.k_scales, k_tail, tail_slots, k);
  if (is_given(args.k_tail)) {
    expect_dtype_of(k_tail, k);
    expect_one_each(tail_slots, args.k.size(0), "token of k");
  }
  check_rope(args, k);
}

// Scales that belong to pages, if there are any.
void check_copied_scales(const Named& scales, const Named& pages) {
  if (!is_given(scales.view)) return;
  expect_tensor(scales, {DType::f16}, pages);
  if (scales.view.rank >= 4 && scales.view.size(0) == pages.view.size(0)) return;
  fail(concat(scales.what, " is ", to_string(scales.view), " and ", pages.what, " is ",
              to_string(pages.view), "; scales that are copied have a part for every page"));
}

void check_copy(const KvCopyPagesArgs& args) {
  const Named k_pages{"kv_copy_pages: k_pages", args.k_pages};
  const Named v_pages{"kv_copy_pages: v_pages", args.v_pages};
  const Named sources{"kv_copy_pages: sources", args.sources};
  const Named targets{"kv_copy_pages: targets", args.targets};
  expect_tensor(k_pages, kAnyType);
  expect_tensor(v_pages, kAnyType, k_pages);
  for (const Named& pages : {k_pages, v_pages}) {
    expect_rank(pages, 4);
    expect_writable(pages);
    if (pages.view.size(3) > 1 && pages.view.stride(3) != 1) {
      fail(concat(pages.what, " is ", to_string(pages.view),
                  "; the elements of a head must be contiguous"));
    }
    if (pages.view.size(1) >= 1) continue;
    fail(concat(pages.what, " is ", to_string(pages.view), "; page_size must be at least 1"));
  }
  expect_shape_of(v_pages, k_pages);
  expect_apart(v_pages, k_pages);
  check_copied_scales({"kv_copy_pages: k_scales", args.k_scales}, k_pages);
  check_copied_scales({"kv_copy_pages: v_scales", args.v_scales}, k_pages);
  expect_tensor(sources, {DType::i32}, k_pages);
  expect_contiguous(sources);
  expect_tensor(targets, {DType::i32}, k_pages);
  expect_one_each(targets, args.sources.num_elements(), "source");
}

void check_gather(const KvGatherArgs& args) {
  static constexpr KvNames kNames{
      "kv_gather: k_pages", "kv_gather: v_pages", "kv_gather: k_scales",   "kv_gather: v_scales",
      "kv_gather: k_tail",  "kv_gather: tails",   "kv_gather: page_table", "kv_gather: seq_lens"};
  const Named k{"kv_gather: k", args.k};
  const Named v{"kv_gather: v", args.v};
  const Named k_pages{kNames.k_pages, args.kv.k_pages};
  const Named starts{"kv_gather: starts", args.starts};
  expect_tensor(k, kFloats);
  expect_tensor(v, kFloats, k);
  check_paged_kv(args.kv, kNames, k);
  for (const Named& out : {k, v}) {
    check_heads(out);
    expect_heads_of(out, k_pages);
    expect_writable(out);
    expect_apart(out, k_pages);
    expect_apart(out, {kNames.v_pages, args.kv.v_pages});
  }
  expect_shape_of(v, k);
  expect_dtype_of(v, k);
  expect_apart(v, k);
  expect_tensor(starts, {DType::i32}, k);
  expect_one_each(starts, args.kv.seq_lens.size(0), "sequence");
}

const Op<KvAppendArgs>& append_op() {
  static const Op<KvAppendArgs> op{"kv_append", &check_append, &cpu::kv_append,
                                   kernels::kv_cache_rows_sm90().append,
                                   kernels::kv_cache_rows().append};
  return op;
}

const Op<KvCopyPagesArgs>& copy_op() {
  static const Op<KvCopyPagesArgs> op{"kv_copy_pages", &check_copy, &cpu::kv_copy_pages,
                                      kernels::kv_cache_rows_sm90().copy_pages,
                                      kernels::kv_cache_rows().copy_pages};
  return op;
}

const Op<KvGatherArgs>& gather_op() {
  static const Op<KvGatherArgs> op{"kv_gather", &check_gather, &cpu::kv_gather,
                                   kernels::kv_cache_rows_sm90().gather,
                                   kernels::kv_cache_rows().gather};
  return op;
}

}  // namespace

void ops::check_kv_append(const KvAppendArgs& args) { check_append(args); }

void kv_append(const KvAppendArgs& args, const Context& ctx) {
  run(append_op(), args, args.k.device, ctx);
}

void kv_copy_pages(const KvCopyPagesArgs& args, const Context& ctx) {
  run(copy_op(), args, args.k_pages.device, ctx);
}

void kv_gather(const KvGatherArgs& args, const Context& ctx) {
  run(gather_op(), args, args.k.device, ctx);
}

bool supports(const KvAppendArgs& args, const Context& ctx) {
  return is_supported(append_op(), args, args.k.device, ctx);
}

bool supports(const KvCopyPagesArgs& args, const Context& ctx) {
  return is_supported(copy_op(), args, args.k_pages.device, ctx);
}

bool supports(const KvGatherArgs& args, const Context& ctx) {
  return is_supported(gather_op(), args, args.k.device, ctx);
}

}  // namespace tessera
