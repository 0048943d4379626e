// What every operation requires of a KV cache.
// SPDX-License-Identifier: MIT
#include "ops/kv_check.h"

#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::ops {
namespace {

constexpr DTypeSet kPageTypes = {DType::f32,  DType::f16, DType::bf16, DType::e4m3,
                                 DType::e5m2, DType::i8,  DType::u8,   DType::i4};

void check_data(const Named& pages) {
  expect_rank(pages, 4);
  const TensorView& view = pages.view;
  if (view.size(3) > 1 && view.stride(3) != 1) {
    fail(concat(pages.what, " is ", to_string(view),
                "; the elements of a head must be contiguous: make them so with copy"));
  }
  if (view.size(1) < 1) {
    fail(concat(pages.what, " is ", to_string(view), "; page_size must be at least 1"));
  }
  if (view.size(3) < 1 || view.size(2) * view.size(3) > kMaxCols || view.size(0) > kMaxCols ||
      view.size(1) > kMaxCols) {
    fail(concat(pages.what, " is ", to_string(view), "; a head must have at least 1 element, a ",
                "token at most ", kMaxCols, ", and so many pages and rows at most"));
  }
}

[[noreturn]] void refuse_scales(const Named& pages, const Named& scales) {
  const TensorView& p = pages.view;
  const auto rows = [&](int64_t last) {
    return concat("f16[", p.size(0), ", ", p.size(1), ", ", p.size(2), ", ", last, "]");
  };
  std::string want = "none";
  const KvFormatTraits& format = traits(kv_format(p, {}));
  if (format.scales == KvScales::head) want = concat("none, f32[1] or f32[", p.size(2), "]");
  if (format.scales == KvScales::row) want = rows(format.scales_per_row());
  if (p.dtype == DType::i4) {
    want += concat(" or, for keys in pages of a multiple of 32 tokens, f16[", p.size(0), ", ",
                   p.size(1) / kKvGroup, ", ", p.size(2), ", ", p.size(3), ", 2]");
  }
  fail(concat(pages.what, " is ", to_string(p), " and ", scales.what, " is ",
              is_given(scales.view) ? to_string(scales.view) : std::string("not given"),
              "; these pages want ", want, ", with scale and low side by side"));
}

bool fits_rows(const TensorView& pages, const TensorView& scales, int64_t last) {
  if (scales.rank != 4 || scales.dtype != DType::f16) return false;
  for (int d = 0; d < 3; ++d) {
    if (scales.size(d) != pages.size(d)) return false;
  }
  return scales.size(3) == last && (last == 1 || scales.stride(3) == 1);
}

bool fits_columns(const TensorView& pages, const TensorView& scales) {
  return scales.rank == 5 && scales.dtype == DType::f16 && pages.size(1) % kKvGroup == 0 &&
         scales.size(0) == pages.size(0) && scales.size(1) == pages.size(1) / kKvGroup &&
         scales.size(2) == pages.size(2) && scales.size(3) == pages.size(3) &&
         scales.size(4) == 2 && scales.stride(4) == 1;
}

bool fit(const TensorView& pages, const TensorView& scales, bool are_keys) {
  const KvFormatTraits& format = traits(kv_format(pages, scales));
  switch (format.scales) {
    case KvScales::none: return !is_given(scales);
    case KvScales::head:
      return !is_given(scales) ||
             (scales.rank == 1 && scales.dtype == DType::f32 &&
              (scales.size(0) == 1 || scales.size(0) == pages.size(2)) && scales.is_contiguous());
    case KvScales::row: return fits_rows(pages, scales, format.scales_per_row());
    case KvScales::column: return are_keys && fits_columns(pages, scales);
  }
  return false;
}

}  // namespace

void check_kv_pages(const Named& pages, const Named& scales, const Named& first, bool are_keys) {
  expect_tensor(pages, kPageTypes, first);
  check_data(pages);
  if (!fit(pages.view, scales.view, are_keys)) refuse_scales(pages, scales);
  if (is_given(scales.view)) expect_tensor(scales, {DType::f16, DType::f32}, first);
}

void check_kv_tail(const Named& k_pages, const TensorView& k_scales, const Named& k_tail,
                   const Named& which, const Named& first) {
  if (!traits(kv_format(k_pages.view, k_scales)).has_tail()) {
    for (const Named& part : {k_tail, which}) {
      if (!is_given(part.view)) continue;
      fail(concat(part.what, " is given and ", k_pages.what, " is ", to_string(k_pages.view),
                  "; only i4 keys with scales by column have a tail: leave it out"));
    }
    return;
  }
  expect_tensor(k_tail, kFloats, first);
  check_data(k_tail);
  const TensorView &tail = k_tail.view, &pages = k_pages.view;
  if (tail.size(1) != kKvGroup || tail.size(2) != pages.size(2) || tail.size(3) != pages.size(3)) {
    fail(concat(k_tail.what, " is ", to_string(tail), " and ", k_pages.what, " is ",
                to_string(pages), "; a tail has ", kKvGroup, " tokens of the heads of a page"));
  }
  expect_tensor(which, kIndices, first);
  expect_contiguous(which);
}

void check_paged_kv(const PagedKv& kv, const KvNames& names, const Named& first) {
  const Named k{names.k_pages, kv.k_pages}, v{names.v_pages, kv.v_pages};
  const Named lens{names.seq_lens, kv.seq_lens}, table{names.page_table, kv.page_table};
  check_kv_pages(k, {names.k_scales, kv.k_scales}, first, true);
  check_kv_pages(v, {names.v_scales, kv.v_scales}, first, false);
  expect_shape_of(v, k);
  expect_tensor(lens, {DType::i32}, first);
  expect_rank(lens, 1);
  expect_contiguous(lens);
  const int64_t batch = kv.seq_lens.size(0);
  if (is_given(kv.page_table)) {
    expect_tensor(table, {DType::i32}, first);
    expect_rank(table, 2);
    if (kv.page_table.size(0) != batch ||
        (kv.page_table.size(1) > 1 && kv.page_table.stride(1) != 1)) {
      fail(concat(table.what, " is ", to_string(kv.page_table), "; it must have ", batch,
                  " rows, one for each sequence, with entries side by side"));
    }
  } else if (kv.k_pages.size(0) != batch) {
    fail(concat(k.what, " is ", to_string(kv.k_pages), " and ", lens.what, " is ",
                to_string(kv.seq_lens), "; without a page table every sequence has a page"));
  }
  const Named tails{names.tails, kv.tails};
  check_kv_tail(k, kv.k_scales, {names.k_tail, kv.k_tail}, tails, first);
  if (!is_given(kv.tails)) return;
  expect_tensor(tails, {DType::i32}, first);
  expect_one_each(tails, batch, "sequence");
}

}  // namespace tessera::ops
