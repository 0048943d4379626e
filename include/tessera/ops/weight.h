// What a matrix product takes as its weight: a dense tensor, or quantised codes with their scales.
// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string_view>

#include "tessera/core/tensor.h"
#include "tessera/ops/quantize.h"

namespace tessera {

// The layout of a weight's tensors in memory. Quantisers and loaders write `rows`. A kernel may
// want another layout, which then has a name here, a definition in weight_packing.h and a function
// in the kernel's rows that makes it from `rows` (pack_weight).
enum class Packing : uint8_t {
  rows,       // values [n, k], contiguous along k; scales in the order of the rows
  fragments,  // i4 in the order in which a thread feeds the tensor cores
};
constexpr std::string_view name(Packing packing) {
  switch (packing) {
    case Packing::rows: return "rows";
    case Packing::fragments: return "fragments";
  }
  return "packed";
}

// Whether codes of a type have zero points.
enum class ZeroPoints : uint8_t { never, optional, always };

// What the codes of a quantised weight may be, one line for each type.
struct WeightCodes {
  DType dtype;
  ZeroPoints zero_points;
  int codes_per_byte;
  bool has_packing;  // Packing::fragments exists for it
};
inline constexpr WeightCodes kWeightCodes[] = {
    {DType::i4, ZeroPoints::optional, 2, true}, {DType::i8, ZeroPoints::never, 1, false},
    {DType::u8, ZeroPoints::always, 1, false},  {DType::e4m3, ZeroPoints::never, 1, false},
    {DType::e5m2, ZeroPoints::never, 1, false},
};
// The line of a type; null: a type of dense weights.
constexpr const WeightCodes* find_weight_codes(DType dtype) {
  for (const WeightCodes& codes : kWeightCodes) {
    if (codes.dtype == dtype) return &codes;
  }
  return nullptr;
}

// A weight [n, k]. Without `scale` it is dense and `values` holds its elements. With `scale`,
// `values` holds codes (kWeightCodes, as quantize writes them), and element (j, i) is
//
//   (values[j, i] - zero_point) * scale
//
// where the shape of `scale` says which elements share one:
//   [1]                                         all
//   [n]                                         a row: per output
//   [n, k / group]                              a group of a row; group divides k
//   [n / rows_per_scale, k / group]             a block of several rows
// The last row and the last column of blocks may be incomplete: both quotients are rounded up.
//
// With `table`, values are i4, and a nibble as it is stored, 0 to 15 without a sign, is an index:
//
//   table[values[j, i]] * scale
//
// MXFP4 is kMxfp4Values in groups of 32 whose scales are powers of two; the table of NF4 comes with
// its checkpoint. There are no zero points then, no order, and no packing but rows.
//
// With `order`, column i of values belongs to column order[i] of a: the columns of a quantiser that
// sorts them (act-order), so that its groups are contiguous.
struct Weight {
  TensorView values;                          // [n, k]; dense also [batch, n, k]; rows may be apart
  std::optional<TensorView> scale = {};       // f32; packed also bf16 or f16; none: dense
  std::optional<TensorView> zero_point = {};  // i32 or u8, shape of scale; u8 needs it; none: 0
  std::optional<TensorView> order = {};       // i32 [k], a permutation; codes alone have one
  std::optional<TensorView> table = {};       // f32 [16], finite: the values of i4's codes
  int64_t rows_per_scale = 1;                 // 128 in FP8 checkpoints with blocks of 128 x 128
  int64_t group = 0;                          // elements of k per scale; 0: k / scale.size(1)
  Packing packing = Packing::rows;
  // f32 [n]: the sum of each row's codes over k, which a product needs whose a has zero points on a
  // GPU (sum_weight_rows). The codes are i8.
  std::optional<TensorView> row_sums = {};
  bool is_static = false;  // no queued work still writes it, so a kernel may read it early

  int64_t n() const { return values.size(-2); }
  int64_t k() const { return values.size(-1); }
  bool is_quantized() const { return scale.has_value(); }
};

// The floats of e2m1 by their bits: a sign, two bits of exponent and one of mantissa.
inline constexpr std::array<float, kTableSize> kMxfp4Values = {
    0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
    -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

// Where the scales of a (checked) quantised weight apply.
inline ScaleLayout scale_layout(const Weight& weight) {
  const TensorView& scale = *weight.scale;
  const int64_t n = weight.n() > 0 ? weight.n() : 1, k = weight.k() > 0 ? weight.k() : 1;
  if (scale.rank == 1) return {scale.size(0) == 1 ? n : 1, k, 1};
  const int64_t groups = scale.size(1) > 0 ? scale.size(1) : 1;  // 0 where k is 0
  return {weight.rows_per_scale, weight.group > 0 ? weight.group : k / groups, groups};
}

// A weight as an argument: a Weight, or anything that is a TensorView, which is then dense.
struct WeightArg : Weight {
  WeightArg() = default;
  WeightArg(const Weight& weight) : Weight(weight) {}
  template <std::convertible_to<TensorView> Dense>
  WeightArg(const Dense& values) : Weight{.values = values} {}
};

}  // namespace tessera
