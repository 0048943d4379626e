// What the Hopper rows of decode attention take.
// SPDX-License-Identifier: MIT
#include "kernels/attention/accept.h"

#include <bit>
#include <initializer_list>

#include "kernels/attention/decode_sm90/launch.h"
#include "kernels/attention/decode_sm90/leaves.h"
#include "kernels/attention/decode_sm90/params.h"
#include "kernels/attention/decode_sm90/stream_plan.h"

namespace tessera::kernels {
namespace {

constexpr int64_t kMostKeys = int64_t{1} << 28;
constexpr int64_t kMostBlocks = 65535;  // along the second and third axis of a grid

bool has_whole_strides(const TensorView& t) {
  for (int axis = 0; axis < t.rank - 1; ++axis) {
    const int64_t bits = t.stride(axis) * bit_width(t.dtype);
    if (t.size(axis) > 1 && (bits <= 0 || bits % 128 != 0)) return false;
  }
  return reinterpret_cast<uintptr_t>(t.data) % 16 == 0;
}

constexpr int64_t kMostScaleBytes = int64_t{1} << 31;  // from page to page

// Axes that are walked lie on 16 bytes, so many bytes apart at most.
bool has_scale_strides(const TensorView& scales, std::initializer_list<int> axes) {
  if (reinterpret_cast<uintptr_t>(scales.data) % 16 != 0) return false;
  for (const int axis : axes) {
    const int64_t bytes = 2 * scales.stride(axis);
    if (scales.size(axis) > 1 && (bytes <= 0 || bytes % 16 != 0 || bytes >= kMostScaleBytes)) {
      return false;
    }
  }
  return true;
}

// Rows' scales side by side, each run of 16 rows on 16 bytes.
bool has_rows_of_scales(const TensorView& scales, int64_t per_row) {
  return has_scale_strides(scales, {0, 2}) && scales.stride(1) == per_row;
}

// Columns' scales side by side.
bool has_columns_of_scales(const TensorView& scales) {
  return has_scale_strides(scales, {0, 1, 2}) && scales.stride(3) == 2;
}

bool has_tail_of(const PagedKv& kv, DType dtype) {
  return kv.k_tail.dtype == dtype && has_whole_strides(kv.k_tail);
}

// How many f16 lie beside a row.
int64_t scales_per_row(KvFormat format) {
  switch (format) {
    case KvFormat::int8: return 1;
    case KvFormat::uint8:
    case KvFormat::int4: return 2;
    default: return 0;
  }
}

bool has_fitting_scales(const DecodeAttentionArgs& args, KvFormat keys, KvFormat values) {
  const PagedKv& kv = args.kv;
  if (kv.k_pages.size(1) % kBoxKeys != 0 && scales_per_row(values) > 0) return false;
  if (keys == KvFormat::int4_columns) {
    if (!has_columns_of_scales(kv.k_scales) || !has_tail_of(kv, args.q.dtype)) return false;
  } else if (scales_per_row(keys) > 0 && !has_rows_of_scales(kv.k_scales, scales_per_row(keys))) {
    return false;
  }
  return scales_per_row(values) == 0 || has_rows_of_scales(kv.v_scales, scales_per_row(values));
}

}  // namespace

bool accepts_decode_sm90(const DecodeAttentionArgs& args, int64_t head_dim, KvFormat format,
                         DType pages) {
  const PagedKv& kv = args.kv;
  const bool is_paged = kv.page_table.rank == 2;
  const int64_t page_size = kv.k_pages.size(1), heads = kv.k_pages.size(2);
  const int64_t group = heads > 0 ? args.q.size(-2) / heads : 0;
  const int64_t capacity = is_paged ? kv.page_table.size(1) * page_size : page_size;
  const KvFormat values = format == KvFormat::int4_columns ? KvFormat::int4 : format;
  if (args.q.size(-1) != head_dim || kv.k_pages.dtype != pages || kv.v_pages.dtype != pages ||
      kv_format(kv.k_pages, kv.k_scales) != format ||
      kv_format(kv.v_pages, kv.v_scales) != values) {
    return false;
  }
  if (args.blocks.rank != 0 || args.keys.rank != 0) return false;
  if (is_paged &&
      (page_size < kBoxKeys || !std::has_single_bit(static_cast<uint64_t>(page_size)))) {
    return false;
  }
  if (group < 1 || group > kMostGroup || heads > kMostBlocks || capacity > kMostKeys ||
      args.q.size(0) * (16 * group) > kMostBlocks * 8) {
    return false;
  }
  if (!has_aligned_heads(args.q) || !has_aligned_heads(args.out) ||
      kv.k_pages.num_elements() == 0 || !has_whole_strides(kv.k_pages) ||
      !has_whole_strides(kv.v_pages)) {
    return false;
  }
  return has_fitting_scales(args, format, values);
}

bool accepts_decode_streaming(const DecodeAttentionArgs& args) {
  constexpr int64_t kMostRows = 8;
  const int64_t heads = args.kv.k_pages.size(2);
  return is_plain(args) && args.q.size(0) <= kMostStreamed && heads > 0 &&
         args.q.size(-2) / heads <= kMostRows;
}

}  // namespace tessera::kernels
