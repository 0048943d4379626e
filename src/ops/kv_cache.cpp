// kv_append and kv_copy_pages: what they take, and where they run.
// SPDX-License-Identifier: MIT
#include "tessera/ops/kv_cache.h"

#include "core/text.h"
#include "cpu/kv_cache.h"
#include "ops/check.h"
#include "ops/dispatch.h"

namespace tessera {

static RowKey key_of(const KvAppendArgs& args) { return {args.k.dtype, args.k_pages.dtype}; }
static RowKey key_of(const KvCopyPagesArgs& args) {
  return {args.k_pages.dtype, args.k_pages.dtype};
}

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

// Both pools: of one shape and type, in memory of their own.
void check_pages(const Named& k_pages, const Named& v_pages) {
  for (const Named& pages : {k_pages, v_pages}) {
    expect_rank(pages, 4);
    expect_contiguous(pages);
    if (pages.view.size(1) >= 1) continue;
    fail(concat(pages.what, " is ", to_string(pages.view), "; page_size must be at least 1"));
  }
  expect_shape_of(v_pages, k_pages);
  expect_dtype_of(v_pages, k_pages);
  expect_apart(v_pages, k_pages);
}

void check_append(const KvAppendArgs& args) {
  const Named k{"kv_append: k", args.k};
  const Named v{"kv_append: v", args.v};
  const Named k_pages{"kv_append: k_pages", args.k_pages};
  const Named v_pages{"kv_append: v_pages", args.v_pages};
  const Named slots{"kv_append: slots", args.slots};
  expect_tensor(k, kFloats);
  expect_tensor(v, kFloats, k);
  check_heads(k);
  check_heads(v);
  expect_dtype_of(v, k);
  expect_shape_of(v, k);
  expect_tensor(k_pages, kFloats, k);
  expect_tensor(v_pages, kFloats, k);
  check_pages(k_pages, v_pages);
  expect_dtype_of(k_pages, k);
  if (args.k_pages.size(2) != args.k.size(1) || args.k_pages.size(3) != args.k.size(2)) {
    fail(concat("kv_append: k is ", to_string(args.k), " and k_pages is ", to_string(args.k_pages),
                "; they must agree in num_kv_heads and head_dim"));
  }
  for (const Named& written : {k_pages, v_pages}) {
    expect_apart(written, k);
    expect_apart(written, v);
  }
  expect_tensor(slots, kIndices, k);
  expect_one_each(slots, args.k.size(0), "token of k");
}

void check_copy(const KvCopyPagesArgs& args) {
  const Named k_pages{"kv_copy_pages: k_pages", args.k_pages};
  const Named v_pages{"kv_copy_pages: v_pages", args.v_pages};
  const Named sources{"kv_copy_pages: sources", args.sources};
  const Named targets{"kv_copy_pages: targets", args.targets};
  expect_tensor(k_pages, kAnyType);
  expect_tensor(v_pages, kAnyType, k_pages);
  check_pages(k_pages, v_pages);
  expect_tensor(sources, {DType::i32}, k_pages);
  expect_contiguous(sources);
  expect_tensor(targets, {DType::i32}, k_pages);
  expect_one_each(targets, args.sources.num_elements(), "source");
}

const Op<KvAppendArgs>& append_op() {
  static const Op<KvAppendArgs> op{"kv_append", &check_append, &cpu::kv_append, {}, {}};
  return op;
}

const Op<KvCopyPagesArgs>& copy_op() {
  static const Op<KvCopyPagesArgs> op{"kv_copy_pages", &check_copy, &cpu::kv_copy_pages, {}, {}};
  return op;
}

}  // namespace

void kv_append(const KvAppendArgs& args, const Context& ctx) {
  run(append_op(), args, args.k.device, ctx);
}

void kv_copy_pages(const KvCopyPagesArgs& args, const Context& ctx) {
  run(copy_op(), args, args.k_pages.device, ctx);
}

bool supports(const KvAppendArgs& args, const Context& ctx) {
  return is_supported(append_op(), args, args.k.device, ctx);
}

bool supports(const KvCopyPagesArgs& args, const Context& ctx) {
  return is_supported(copy_op(), args, args.k_pages.device, ctx);
}

}  // namespace tessera
