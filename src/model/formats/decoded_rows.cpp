// Decoded rows as floats, and as the codes of a Weight.
// SPDX-License-Identifier: MIT
#include "model/formats/decoded_rows.h"

#include <algorithm>
#include <numeric>

#include "core/element.h"
#include "core/text.h"
#include "tessera/core/convert.h"
#include "tessera/core/error.h"

namespace tessera::model {
namespace {

float number_of(const DecodedRows& rows, int16_t code) {
  if (rows.is_fp8) return to_float(E4m3{static_cast<uint8_t>(code)});
  if (!rows.table.empty()) return rows.table[static_cast<size_t>(code)];
  return static_cast<float>(code);
}

struct Range {
  int low, high;
};

// The codes that a type holds; i4 with zero points or a table is unsigned.
Range range_of(const CodeForm& form) {
  if (form.codes == DType::i4) {
    return form.has_zero_points || form.has_table ? Range{0, 15} : Range{-8, 7};
  }
  if (form.codes == DType::i8) return {-128, 127};
  return {0, 255};
}

void write_code(const Weight& to, int64_t index, int code) {
  if (to.values.dtype == DType::i4) {
    write_i4(to.values.data, index, static_cast<int8_t>(code));
  } else {
    to.values.as<uint8_t>()[index] = static_cast<uint8_t>(code);
  }
}

}  // namespace

void dequantize(const DecodedRows& rows, int64_t row, int64_t col, const TensorView& out) {
  for (int64_t i = 0; i < out.size(0); ++i) {
    const int16_t* codes = rows.codes.data() + (row + i) * rows.num_cols;
    const int64_t first = (row + i) * rows.num_groups;
    float* values = out.as<float>() + i * out.size(1);
    for (int64_t j = 0; j < out.size(1); ++j) {
      const auto g = static_cast<size_t>(first + rows.group_at(col + j));
      const int16_t zero = rows.zero.empty() ? int16_t{0} : rows.zero[g];
      values[j] = (number_of(rows, codes[col + j]) - static_cast<float>(zero)) * rows.scale[g];
    }
  }
}

std::vector<int32_t> sorted_columns(std::span<const int32_t> group_of, int64_t group,
                                    std::string_view tensor) {
  std::vector<int32_t> order(group_of.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {},
                           [&](int32_t col) { return group_of[static_cast<size_t>(col)]; });
  for (size_t i = 0; i < order.size(); ++i) {
    const int32_t found = group_of[static_cast<size_t>(order[i])];
    const auto want = static_cast<int32_t>(static_cast<int64_t>(i) / group);
    if (found == want) continue;
    fail(concat("checkpoint: tensor '", tensor, "' puts other than ", group, " columns into group ",
                std::min(found, want), "; all groups must have the size that config.json says"));
  }
  return order;
}

void encode(const DecodedRows& rows, int64_t row, int64_t col, const CodeForm& form,
            const Weight& to, std::string_view tensor) {
  const int64_t num_rows = to.n(), num_cols = to.k();
  const int64_t group = form.group > 0 ? form.group : num_cols;
  const int64_t num_groups = std::max<int64_t>(1, num_cols / std::max<int64_t>(1, group));
  const int32_t* order = form.has_order ? to.order->as<int32_t>() : nullptr;
  const Range range = range_of(form);
  for (int64_t i = 0; i < num_rows; ++i) {
    const int16_t* codes = rows.codes.data() + (row + i) * rows.num_cols + col;
    const int64_t first = (row + i) * rows.num_groups;
    for (int64_t g = 0; g < num_groups; ++g) {
      const int64_t begin = g * group, end = std::min(num_cols, begin + group);
      const int64_t head = order != nullptr ? order[begin] : begin;
      const auto from = static_cast<size_t>(first + rows.group_at(col + head));
      const int zero = rows.zero.empty() ? 0 : rows.zero[from];
      // Unsigned codes keep their zero point; signed ones lose it. Codes that are signed already
      // move up where the form has zero points.
      const int lift = form.has_zero_points && rows.zero.empty() ? (range.high + 1) / 2 : 0;
      const int drop = form.has_zero_points || rows.is_fp8 ? 0 : zero;
      to.scale->as<float>()[i * num_groups + g] = rows.scale[from];
      if (form.has_zero_points) {
        to.zero_point->as<uint8_t>()[i * num_groups + g] = static_cast<uint8_t>(zero + lift);
      }
      for (int64_t j = begin; j < end; ++j) {
        const int64_t source = order != nullptr ? order[j] : j;
        const int code = codes[source] + lift - drop;
        if (code < range.low || code > range.high) {
          fail(concat("checkpoint: tensor '", tensor, "' has code ", codes[source],
                      " with zero point ", zero, " at [", row + i, ", ", col + source,
                      "], which symmetric codes of ", name(form.codes),
                      " do not hold; config.json must not say that it is symmetric"));
        }
        write_code(to, i * num_cols + j, code);
      }
    }
  }
}

}  // namespace tessera::model
