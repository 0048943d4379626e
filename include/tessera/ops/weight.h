// What a matrix product takes as its weight: a dense tensor, or quantised codes with their scales.
// SPDX-License-Identifier: MIT
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string_view>

#include "tessera/core/tensor.h"
#include "tessera/ops/quantize.h"

namespace tessera {

// The layout of a weight's tensors in memory. Quantisers and loaders write `rows`. A kernel may
// want another layout, which then has a name here and a function in the kernel's rows that makes it
// from `rows` (pack_weight).
enum class Packing : uint8_t {
  rows,  // values [n, k], contiguous along k; scales in the order of the rows
};
constexpr std::string_view name(Packing packing) {
  return packing == Packing::rows ? "rows" : "packed";
}

// A weight [n, k]. Without `scale` it is dense and `values` holds its elements. With `scale`,
// `values` holds codes (i8, u8, i4, e4m3 or e5m2, as quantize writes them), and element (j, i) is
//
//   (values[j, i] - zero_point) * scale
//
// where the shape of `scale` says which elements share one:
//   [1]                                         all
//   [n]                                         a row: per output
//   [n / rows_per_scale, k / group]             a group of a row, or a block of several rows
// The last row and the last column of blocks may be incomplete: both quotients are rounded up.
struct Weight {
  TensorView values;                          // [n, k]; dense also [batch, n, k]; rows may be apart
  std::optional<TensorView> scale = {};       // f32, contiguous; none: dense
  std::optional<TensorView> zero_point = {};  // i32, shape of scale; u8 needs it; none: 0
  int64_t rows_per_scale = 1;                 // 128 in FP8 checkpoints with blocks of 128 x 128
  int64_t group = 0;                          // elements of k per scale; 0: k / scale.size(1)
  Packing packing = Packing::rows;
  bool is_static = false;  // no queued work still writes it, so a kernel may read it early

  int64_t n() const { return values.size(-2); }
  int64_t k() const { return values.size(-1); }
  bool is_quantized() const { return scale.has_value(); }
};

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
