// The shape of a quantised weight, known before any of it is read.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "tessera/core/dtype.h"
#include "tessera/ops/weight.h"
#include "tessera/ops/weight_format.h"

namespace tessera::model {

// How many parts of `by` cover `value`: groups of a row, words of packed codes.
constexpr int64_t divide_up(int64_t value, int64_t by) { return (value + by - 1) / by; }

// What a Weight [n, k] of codes consists of (tessera/ops/weight.h).
struct CodeForm {
  DType codes = DType::i8;     // one of kWeightCodes
  int64_t group = 0;           // elements of k per scale; 0: all of them
  int64_t rows_per_scale = 1;  // with a group
  bool has_zero_points = false;
  bool has_order = false;  // columns are sorted by group
  bool has_table = false;  // codes, of i4, are indices of 16 values
  // The type of scales in a packed weight: bf16 or f16 if that holds all of them exactly, else f32.
  DType scale = DType::f32;

  bool operator==(const CodeForm&) const = default;
};

// "i4, groups of 128, zero points"
std::string to_string(const CodeForm& form);

// The type of scales in memory: f32, unless the weight is packed.
constexpr DType kept_scale(const CodeForm& form, Packing packing) {
  return packing == Packing::rows ? DType::f32 : form.scale;
}

// Bytes of codes, scales, zero points, order and table in Packing::rows.
int64_t form_bytes(const CodeForm& form, int64_t n, int64_t k);

// Whether a weight with k columns can have this form: groups of one row must be whole, and those of
// i4 even.
bool fits(const CodeForm& form, int64_t k);

// The form of a weight with k columns that is quantised while it is loaded. `group` is that of
// int4, and the largest divisor it shares with k is used; the scales of int4 are to be rounded to
// bf16. Refuses what does not fit, naming `tensor`. None for formats that keep values.
std::optional<CodeForm> form_of(WeightFormat format, int64_t k, int64_t group,
                                const std::string& tensor);

// The form that holds all of several weights exactly, where one is put below the other: signed
// codes are widened, groups become the largest common one, and scales whose types differ become
// f32. None if there is no such form.
std::optional<CodeForm> common_form(std::span<const CodeForm> forms, int64_t k);

// The same form with a scale for every row, for rows that are interleaved or whose blocks would not
// begin at a multiple of rows_per_scale.
CodeForm by_row(const CodeForm& form);

}  // namespace tessera::model
