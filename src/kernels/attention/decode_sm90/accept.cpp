// What the Hopper rows of decode attention take.
// SPDX-License-Identifier: MIT
#include "kernels/attention/accept.h"

#include <bit>

#include "kernels/attention/decode_sm90/launch.h"
#include "kernels/attention/decode_sm90/leaves.h"
#include "kernels/attention/decode_sm90/params.h"

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

// Rows' scales side by side, each run of 16 rows on 16 bytes.
bool has_rows_of_scales(const TensorView& scales, int64_t per_row) {
  if (reinterpret_cast<uintptr_t>(scales.data) % 16 != 0) return false;
  for (const int axis : {0, 2}) {
    if (scales.size(axis) > 1 && (scales.stride(axis) <= 0 || scales.stride(axis) % 8 != 0)) {
      return false;
    }
  }
  return scales.stride(1) == per_row;
}

}  // namespace

bool accepts_decode_sm90(const DecodeAttentionArgs& args, int64_t head_dim, KvFormat format,
                         DType pages) {
  const PagedKv& kv = args.kv;
  const bool is_paged = kv.page_table.rank == 2;
  const int64_t page_size = kv.k_pages.size(1), heads = kv.k_pages.size(2);
  const int64_t group = heads > 0 ? args.q.size(-2) / heads : 0;
  const int64_t capacity = is_paged ? kv.page_table.size(1) * page_size : page_size;
  if (args.q.size(-1) != head_dim || kv.k_pages.dtype != pages || kv.v_pages.dtype != pages ||
      kv_format(kv.k_pages, kv.k_scales) != format ||
      kv_format(kv.v_pages, kv.v_scales) != format) {
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
  const int64_t per_row = format == KvFormat::int8                                ? 1
                          : format == KvFormat::uint8 || format == KvFormat::int4 ? 2
                                                                                  : 0;
  return per_row == 0 || (page_size % kBoxKeys == 0 && has_rows_of_scales(kv.k_scales, per_row) &&
                          has_rows_of_scales(kv.v_scales, per_row));
}

}  // namespace tessera::kernels
