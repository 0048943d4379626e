// Decode attention's table of the sm90 library, and what its rows accept.
// SPDX-License-Identifier: MIT
#include "kernels/attention/rows.h"

#include <array>
#include <bit>
#include <initializer_list>
#include <limits>

#include "kernels/attention/decode/sm90/plan.h"
#include "kernels/attention/params.h"

namespace tessera::kernels {
namespace decode_sm90 {
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

constexpr int64_t kMostScaleBytes = int64_t{1} << 31;  // from one page to the next

// Strides of the given axes are multiples of 16 bytes and not too large.
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

// The scales of rows side by side, every 16 rows on 16 bytes.
bool has_rows_of_scales(const TensorView& scales, int64_t per_row) {
  return has_scale_strides(scales, {0, 2}) && scales.stride(1) == per_row;
}

// The scales of columns side by side.
bool has_columns_of_scales(const TensorView& scales) {
  return has_scale_strides(scales, {0, 1, 2}) && scales.stride(3) == 2;
}

bool has_tail_of(const PagedKv& kv, DType dtype) {
  return kv.k_tail.dtype == dtype && has_whole_strides(kv.k_tail);
}

bool has_fitting_scales(const DecodeAttentionArgs& args, KvFormat format) {
  const PagedKv& kv = args.kv;
  const KvFormatTraits& keys = traits(format);
  const KvFormatTraits& values = traits(keys.values);
  if (kv.k_pages.size(1) % kBoxKeys != 0 && values.scales_per_row() > 0) return false;
  if (keys.scales == KvScales::column) {
    if (!has_columns_of_scales(kv.k_scales) || !has_tail_of(kv, args.q.dtype)) return false;
  } else if (keys.scales_per_row() > 0 && !has_rows_of_scales(kv.k_scales, keys.scales_per_row())) {
    return false;
  }
  return values.scales_per_row() == 0 || has_rows_of_scales(kv.v_scales, values.scales_per_row());
}

bool accepts_sizes(const DecodeAttentionArgs& args, int64_t head_dim, KvFormat format) {
  const PagedKv& kv = args.kv;
  const bool is_paged = kv.page_table.rank == 2;
  const int64_t page_size = kv.k_pages.size(1), heads = kv.k_pages.size(2);
  const int64_t group = heads > 0 ? args.q.size(-2) / heads : 0;
  const int64_t capacity = is_paged ? kv.page_table.size(1) * page_size : page_size;
  const DType pages = pages_dtype(format, args.q.dtype);
  if (args.q.size(-1) != head_dim || kv.k_pages.dtype != pages || kv.v_pages.dtype != pages ||
      kv_format(kv.k_pages, kv.k_scales) != format ||
      kv_format(kv.v_pages, kv.v_scales) != traits(format).values) {
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
  return has_fitting_scales(args, format);
}

bool accepts_any_streaming(const DecodeAttentionArgs& args) {
  constexpr int64_t kMostRows = 8;
  const int64_t heads = args.kv.k_pages.size(2);
  return is_plain(args) && args.q.size(0) <= kMostStreamed && heads > 0 &&
         args.q.size(-2) / heads <= kMostRows;
}

template <KvFormat kFormat, int kD>
bool accepts(const DecodeAttentionArgs& args) {
  return accepts_sizes(args, kD, kFormat);
}
template <int kD>
bool accepts_streaming(const DecodeAttentionArgs& args) {
  return accepts_sizes(args, kD, KvFormat::plain) && accepts_any_streaming(args);
}

// Whole heads are rotated, in pairs that are half a head apart, two elements at a time.
template <int kD>
bool accepts_append(const AppendAttentionArgs& args) {
  const KvAppendArgs& append = args.append;
  constexpr int64_t kWord = 4, kPair = 8;
  return accepts_sizes(args.decode, kD, KvFormat::plain) && is_plain(args.decode) && append.rope &&
         append.rope->style == RopeStyle::half_split && append.rope->table.size(1) == kD &&
         has_aligned_heads(append.rope->table, kPair) && has_aligned_heads(append.k, kWord) &&
         has_aligned_heads(append.v, kWord) &&
         append.k_pages.size(0) <= std::numeric_limits<int>::max();
}

// "bf16_d128", "bf16_i4_columns_d128", "bf16_d128_streaming".
template <class Q, KvFormat kFormat, int kD, bool kIsStreaming = false>
constexpr Label kLabel = [] {
  Label label = label_of(dtype_of<Q>);
  if (kFormat != KvFormat::plain) label.add("_"), label.add(traits(kFormat).dtype);
  if (traits(kFormat).scales == KvScales::column) label.add("_columns");
  label.add("_d"), label.add(kD);
  if (kIsStreaming) label.add("_streaming");
  return label;
}();

template <class Q, KvFormat kFormat, int kD>
constexpr Row<DecodeAttentionArgs> row() {
  return {"attention_decode",         Library::sm90,
          {dtype_of<Q>, dtype_of<Q>}, &launch_decode<Q, kFormat, kD>,
          kLabel<Q, kFormat, kD>,     &accepts<kFormat, kD>};
}

template <class Q, int kD>
constexpr Row<AppendAttentionArgs> append_row() {
  return {"attention_append",
          Library::sm90,
          {dtype_of<Q>, dtype_of<Q>},
          &launch_append<Q, kD>,
          kLabel<Q, KvFormat::plain, kD>,
          &accepts_append<kD>};
}
constexpr std::array kAppendRows{append_row<Bf16, 128>(), append_row<Bf16, 64>(),
                                 append_row<F16, 128>(), append_row<F16, 64>()};

// After rows that accept the same calls, so that these are found only by name.
template <class Q, int kD>
constexpr Row<DecodeAttentionArgs> streaming_row() {
  return {"attention_decode",
          Library::sm90,
          {dtype_of<Q>, dtype_of<Q>},
          &launch_streaming<Q, kD>,
          kLabel<Q, KvFormat::plain, kD, true>,
          &accepts_streaming<kD>,
          false};
}

template <class Q>
constexpr auto rows_of() {
  using enum KvFormat;
  return std::array{
      row<Q, plain, 128>(),      row<Q, plain, 64>(),       row<Q, plain, 96>(),
      row<Q, plain, 256>(),      row<Q, plain, 80>(),       row<Q, plain, 112>(),
      row<Q, plain, 160>(),      row<Q, plain, 192>(),      row<Q, e4m3, 128>(),
      row<Q, e4m3, 64>(),        row<Q, e4m3, 96>(),        row<Q, e4m3, 256>(),
      row<Q, int8, 128>(),       row<Q, int8, 64>(),        row<Q, int8, 96>(),
      row<Q, int8, 256>(),       row<Q, int4_token, 128>(), row<Q, int4_token, 64>(),
      row<Q, int4_token, 256>(), row<Q, e5m2, 128>(),       row<Q, e5m2, 64>(),
      row<Q, uint8, 128>(),      row<Q, uint8, 64>(),       row<Q, int4, 128>(),
      row<Q, int4, 64>(),
  };
}

constexpr auto kRows = joined(rows_of<Bf16>(), rows_of<F16>(),
                              std::array{streaming_row<Bf16, 128>(), streaming_row<Bf16, 64>(),
                                         streaming_row<F16, 128>(), streaming_row<F16, 64>()});

}  // namespace
}  // namespace decode_sm90

std::span<const Row<DecodeAttentionArgs>> attention_decode_rows_sm90() {
  return decode_sm90::kRows;
}

std::span<const Row<AppendAttentionArgs>> attention_append_rows_sm90() {
  return decode_sm90::kAppendRows;
}

}  // namespace tessera::kernels
