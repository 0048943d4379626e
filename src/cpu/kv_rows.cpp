// Reading and writing the rows of a KV cache.
// SPDX-License-Identifier: MIT
#include "cpu/kv_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/text.h"
#include "cpu/quant_code.h"
#include "tessera/core/convert.h"
#include "tessera/core/error.h"

namespace tessera::cpu {
namespace {

constexpr float kLargestF16 = 65504.0f;

// Calls f with a value of the storage type behind a type that fills whole bytes.
template <class F>
void with_row_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32: return f(float{});
    case DType::f16: return f(F16{});
    case DType::bf16: return f(Bf16{});
    case DType::e4m3: return f(E4m3{});
    case DType::e5m2: return f(E5m2{});
    case DType::i8: return f(int8_t{});
    case DType::u8: return f(uint8_t{});
    default: fail("the CPU was handed a KV cache of a type it does not know");
  }
}

// An element is code * scale + low.
struct RowScale {
  float scale;
  float low;
};

// A scale rounded to f16, as a float: finite and never 0.
float stored_scale(float scale) {
  const float rounded = to_float(from_float<F16>(std::min(scale, kLargestF16)));
  return rounded > 0.0f ? rounded : 1.0f;
}
// Adding 0 turns -0 into 0, so that the order of equal zeros does not matter.
float stored_low(float low) {
  return to_float(from_float<F16>(std::clamp(low, -kLargestF16, kLargestF16))) + 0.0f;
}

// The scale of `count` elements `step` apart, for codes of the given type. If an element is not
// finite, scale and low are NaN: codes cannot express it, so everything read back is NaN rather
// than plausible numbers.
RowScale find_scale(DType codes, const float* elements, int64_t count, int64_t step) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  float lowest = kInfinity, highest = -kInfinity, taint = 0.0f;
  for (int64_t i = 0; i < count; ++i) {
    const float x = elements[i * step];
    if (x < lowest) lowest = x;
    if (x > highest) highest = x;
    taint += x * 0.0f;
  }
  if (taint != 0.0f) return {taint, taint};       // NaN
  if (lowest > highest) lowest = highest = 0.0f;  // no elements
  if (codes == DType::i8) {
    return {stored_scale(std::max(highest, -lowest) / quant_max(DType::i8)), 0.0f};
  }
  const float steps = codes == DType::u8 ? 255.0f : 15.0f;
  const float low = stored_low(lowest);
  return {stored_scale((highest - low) / steps), low};
}

// 0 to `highest`; NaN, which a NaN scale produces, gives 0.
int unsigned_code(float x, float scale, float low, int highest) {
  return static_cast<int>(shifted_code((x - low) / scale, 0, highest));
}

PageStrides strides_of(const TensorView& pages) {
  return {pages.stride(0), pages.stride(1), pages.stride(2)};
}

void set_nibble(uint8_t* byte, bool is_high, int code) {
  const int shift = is_high ? 4 : 0;
  *byte = static_cast<uint8_t>((*byte & ~(15 << shift)) | (code << shift));
}

}  // namespace

KvRows::KvRows(const TensorView& pages, const TensorView& scales)
    : pages_(pages), scales_(scales), format_(kv_format(pages, scales)) {}

int64_t KvRows::element(int64_t page, int64_t row, int64_t head) const {
  return page * pages_.stride(0) + row * pages_.stride(1) + head * pages_.stride(2);
}

int64_t KvRows::scale_element(int64_t page, int64_t row_or_group, int64_t head) const {
  return page * scales_.stride(0) + row_or_group * scales_.stride(1) + head * scales_.stride(2);
}

KvRows::Scale KvRows::scale_at(int64_t element) const {
  const F16* at = scales_.as<F16>() + element;
  return {to_float(at[0]), scales_.size(-1) == 2 ? to_float(at[1]) : 0.0f};
}

float KvRows::head_scale(int64_t head) const {
  if (scales_.data == nullptr) return 1.0f;
  return scales_.as<float>()[scales_.size(0) == 1 ? 0 : head];
}

std::byte* KvRows::row(int64_t page, int64_t row, int64_t head) const {
  return pages_.as<std::byte>() + storage_bytes(pages_.dtype, element(page, row, head));
}

void KvRows::read(int64_t page, int64_t row, int64_t head, float* elements) const {
  const int64_t d = head_dim(), first = element(page, row, head);
  const KvScales kind = traits(format_).scales;
  if (pages_.dtype == DType::i4) {
    const bool by_column = kind == KvScales::column;
    const int64_t at = scale_element(page, by_column ? row / kKvGroup : row, head);
    for (int64_t i = 0; i < d; ++i) {
      const Scale s = scale_at(by_column ? at + i * scales_.stride(3) : at);
      const int code = *nibbles(first + i) >> ((first + i) % 2 == 0 ? 0 : 4) & 15;
      const float product = static_cast<float>(code) * s.scale;
      elements[i] = product + s.low;
    }
    return;
  }
  Scale s;
  if (kind == KvScales::head) s.scale = head_scale(head);
  if (kind == KvScales::row) s = scale_at(scale_element(page, row, head));
  with_row_type(pages_.dtype, [&](auto type) {
    const auto* codes = pages_.as<decltype(type)>() + first;
    for (int64_t i = 0; i < d; ++i) elements[i] = to_float(codes[i]);
  });
  if (kind == KvScales::none) return;
  for (int64_t i = 0; i < d; ++i) {
    const float product = elements[i] * s.scale;
    elements[i] = product + s.low;
  }
}

void KvRows::write(int64_t page, int64_t row, int64_t head, const float* elements) const {
  const int64_t d = head_dim(), first = element(page, row, head);
  const auto make_scale = [&] {
    const RowScale made = find_scale(pages_.dtype, elements, d, 1);
    F16* at = scales_.as<F16>() + scale_element(page, row, head);
    at[0] = from_float<F16>(made.scale);
    if (scales_.size(-1) == 2) at[1] = from_float<F16>(made.low);
    return made;
  };
  switch (format_) {
    case KvFormat::plain:
      with_row_type(pages_.dtype, [&](auto type) {
        using T = decltype(type);
        for (int64_t i = 0; i < d; ++i) pages_.as<T>()[first + i] = from_float<T>(elements[i]);
      });
      return;
    case KvFormat::e4m3:
    case KvFormat::e5m2: {
      const float scale = head_scale(head);
      with_row_type(pages_.dtype, [&](auto type) {
        using T = decltype(type);
        for (int64_t i = 0; i < d; ++i) {
          pages_.as<T>()[first + i] = byte_code<T>(elements[i] / scale);
        }
      });
      return;
    }
    case KvFormat::int8: {
      const float scale = make_scale().scale;
      for (int64_t i = 0; i < d; ++i) {
        pages_.as<int8_t>()[first + i] = byte_code<int8_t>(elements[i] / scale);
      }
      return;
    }
    case KvFormat::uint8:
    case KvFormat::int4_token: {
      const int highest = format_ == KvFormat::uint8 ? 255 : 15;
      const auto [scale, low] = make_scale();
      for (int64_t i = 0; i < d; ++i) {
        const int code = unsigned_code(elements[i], scale, low, highest);
        if (format_ == KvFormat::uint8) {
          pages_.as<uint8_t>()[first + i] = static_cast<uint8_t>(code);
        } else {
          set_nibble(nibbles(first + i), (first + i) % 2 != 0, code);
        }
      }
      return;
    }
    case KvFormat::int4: fail("keys with scales by column are written in groups of 32 tokens");
  }
}

void KvRows::write_group(int64_t page, int64_t group, int64_t head, const float* rows) const {
  const int64_t d = head_dim();
  for (int64_t column = 0; column < d; ++column) {
    const auto [scale, low] = find_scale(pages_.dtype, rows + column, kKvGroup, d);
    F16* at = scales_.as<F16>() + scale_element(page, group, head) + column * scales_.stride(3);
    at[0] = from_float<F16>(scale);
    at[1] = from_float<F16>(low);
    for (int64_t row = 0; row < kKvGroup; ++row) {
      const int64_t i = element(page, group * kKvGroup + row, head) + column;
      set_nibble(nibbles(i), i % 2 != 0, unsigned_code(rows[row * d + column], scale, low, 15));
    }
  }
}

KvPages kv_pages(const TensorView& pages, const TensorView& scales) {
  KvPages made;
  made.format = kv_format(pages, scales);
  made.dtype = pages.dtype;
  made.data = pages.data;
  made.strides = strides_of(pages);
  made.scales = scales.data;
  if (scales.rank == 1) made.scale_strides.head = scales.size(0) == 1 ? 0 : 1;
  if (scales.rank >= 4) made.scale_strides = strides_of(scales);
  if (scales.rank == 5) made.column_stride = scales.stride(3);
  return made;
}

KvTokens::KvTokens(const PagedKv& kv)
    : kv_(kv), k_(kv.k_pages, kv.k_scales), v_(kv.v_pages, kv.v_scales) {}

int64_t KvTokens::page(int64_t sequence, int64_t token) const {
  const TensorView& table = kv_.page_table;
  if (table.rank != 2) return sequence;
  return table.as<int32_t>()[sequence * table.stride(0) + token / kv_.k_pages.size(1)];
}

int64_t KvTokens::tail_begin(int64_t sequence) const {
  const int64_t end = length(sequence);
  return traits(k_.format()).has_tail() && end > 0 ? (end - 1) / kKvGroup * kKvGroup : end;
}

void KvTokens::read_k(int64_t sequence, int64_t token, int64_t head, float* elements) const {
  if (token < tail_begin(sequence)) {
    return k_.read(page(sequence, token), token % kv_.k_pages.size(1), head, elements);
  }
  KvRows(kv_.k_tail, {}).read(kv_.tails.as<int32_t>()[sequence], token % kKvGroup, head, elements);
}

void KvTokens::read_v(int64_t sequence, int64_t token, int64_t head, float* elements) const {
  v_.read(page(sequence, token), token % kv_.v_pages.size(1), head, elements);
}

void check_tokens(std::string_view op, const PagedKv& kv) {
  const KvTokens tokens(kv);
  const int64_t page_size = kv.k_pages.size(1), num_pages = kv.k_pages.size(0);
  const bool has_table = kv.page_table.rank == 2;
  const int64_t most = (has_table ? kv.page_table.size(1) : 1) * page_size;
  for (int64_t s = 0; s < kv.seq_lens.size(0); ++s) {
    const int64_t length = tokens.length(s);
    if (length < 0 || length > most) {
      fail(concat(op, ": seq_lens[", s, "] is ", length, "; ",
                  has_table ? "a row of page_table" : "a page", " has room for 0 to ", most));
    }
    for (int64_t t = 0; has_table && t < length; t += page_size) {
      const int64_t page = tokens.page(s, t);
      if (page >= 0 && page < num_pages) continue;
      fail(concat(op, ": page_table[", s, ", ", t / page_size, "] is ", page,
                  "; k_pages has pages 0 to ", num_pages - 1));
    }
  }
  check_tails(op, kv);
}

void check_tails(std::string_view op, const PagedKv& kv) {
  if (!traits(kv_format(kv.k_pages, kv.k_scales)).has_tail()) return;
  for (int64_t s = 0; s < kv.seq_lens.size(0); ++s) {
    if (kv.seq_lens.as<int32_t>()[s] == 0) continue;
    const int64_t tail = kv.tails.as<int32_t>()[s];
    if (tail >= 0 && tail < kv.k_tail.size(0)) continue;
    fail(concat(op, ": tails[", s, "] is ", tail, "; k_tail has tails 0 to ",
                kv.k_tail.size(0) - 1));
  }
}

}  // namespace tessera::cpu
