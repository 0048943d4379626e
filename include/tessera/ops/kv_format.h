// How a KV cache stores keys and values: the formats, and one table of what each of them is.
// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string_view>

#include "tessera/core/dtype.h"

namespace tessera {

// A cache kept in a format has its keys in that format and its values in traits(format).values.
enum class KvFormat : uint8_t {
  plain,       // as the model computes them
  e4m3,        // 8 bits
  e5m2,        // 8 bits
  int8,        // 8 bits and a scale for each row
  uint8,       // 8 bits, a scale and a smallest value for each row
  int4,        // keys: a scale and a smallest value for each column of 32 tokens
  int4_token,  // 4 bits, a scale and a smallest value for each row
};

// Which elements share a scale. A row is the head_dim elements of one token and head.
enum class KvScales : uint8_t {
  none,
  head,    // f32 [1] or [num_kv_heads], chosen by the caller; absent: 1
  row,     // f16 [num_pages, page_size, num_kv_heads, scales_per_row]
  column,  // f16 [num_pages, page_size / 32, num_kv_heads, head_dim, 2]
};
inline constexpr int64_t kKvGroup = 32;  // tokens whose columns share a scale

struct KvFormatTraits {
  KvFormat format;
  std::string_view name;  // on the command line, in benches and in records
  DType dtype;            // of the pages; plain pages have the model's type instead
  KvScales scales;
  bool has_low;     // an element is code * scale + low; otherwise code * scale
  KvFormat values;  // of the values beside keys of this format

  // Scale and low of a row lie side by side.
  constexpr int64_t scales_per_row() const { return scales != KvScales::row ? 0 : has_low ? 2 : 1; }
  // Columns get a scale once 32 tokens are there; until then the newest keys wait in a tail, in the
  // model's type.
  constexpr bool has_tail() const { return scales == KvScales::column; }
};

inline constexpr KvFormatTraits kKvFormats[] = {
    {KvFormat::plain, "plain", DType::f32, KvScales::none, false, KvFormat::plain},
    {KvFormat::e4m3, "e4m3", DType::e4m3, KvScales::head, false, KvFormat::e4m3},
    {KvFormat::e5m2, "e5m2", DType::e5m2, KvScales::head, false, KvFormat::e5m2},
    {KvFormat::int8, "int8", DType::i8, KvScales::row, false, KvFormat::int8},
    {KvFormat::uint8, "uint8", DType::u8, KvScales::row, true, KvFormat::uint8},
    {KvFormat::int4, "int4", DType::i4, KvScales::column, true, KvFormat::int4_token},
    {KvFormat::int4_token, "int4_token", DType::i4, KvScales::row, true, KvFormat::int4_token},
};

constexpr const KvFormatTraits& traits(KvFormat format) {
  return kKvFormats[static_cast<size_t>(format)];
}
static_assert([] {
  for (const KvFormatTraits& row : kKvFormats) {
    if (&traits(row.format) != &row) return false;
  }
  return true;
}());

// The formats alone, for loops.
inline constexpr auto kAllKvFormats = [] {
  std::array<KvFormat, std::size(kKvFormats)> formats{};
  for (size_t i = 0; i < formats.size(); ++i) formats[i] = kKvFormats[i].format;
  return formats;
}();

constexpr std::string_view name(KvFormat format) { return traits(format).name; }

// The type of pages in a format, where the model's is `plain`.
constexpr DType pages_dtype(KvFormat format, DType plain) {
  return format == KvFormat::plain ? plain : traits(format).dtype;
}

constexpr std::optional<KvFormat> find_kv_format(std::string_view text) {
  for (const KvFormatTraits& row : kKvFormats) {
    if (row.name == text) return row.format;
  }
  return std::nullopt;
}

}  // namespace tessera
