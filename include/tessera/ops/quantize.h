// Quantise and dequantise: integers and FP8, with scales for a tensor, channel, token or group.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tessera/core/context.h"
#include "tessera/core/error.h"
#include "tessera/core/tensor.h"

namespace tessera {

enum class ScaleMode : uint8_t {
  dynamic,  // scale (and zero_point) are computed from x and written
  fixed,    // scale (and zero_point) are read
};

// x is seen as [rows, cols], and the shape of `scale` says which elements share one:
//   [1]  or [1, 1]    the whole tensor
//   [1, cols]         a column: per channel
//   [rows, 1]         a row: per token
//   [rows, cols / g]  g consecutive elements of a row: per group
//
//   symmetric   q = round(x / scale)                 dynamic: scale = absmax / qmax
//   with zero   q = round(x / scale) + zero_point    dynamic: scale = (max - min) / (levels - 1),
//                                                    zero_point = round(-min / scale)
// max and min include 0, so that 0 is exact; a scale that would be 0 is 1. Rounding is to nearest
// even and the result saturates to the type's range. x / scale is x * (1 / scale) in float.
//
// Values that are not finite. Dynamic: a NaN or an infinity among the elements of a scale makes the
// scale NaN (and the zero point 0), so everything dequantised with it is NaN. Fixed: with FP8 they
// become NaN; integers have no NaN, so NaN becomes 0 (the zero_point, if there is one) and
// infinities saturate: check x first if that matters.
//
//   type         symmetric codes  qmax   with zero point
//   i8           -127 .. 127      127    -
//   u8           -                -      0 .. 255
//   i4           -7 .. 7          7      0 .. 15, unsigned nibbles
//   e4m3, e5m2   all finite       448, 57344   -
struct QuantizeArgs {
  TensorView x;                               // [rows, cols]; f32, f16 or bf16
  TensorView out;                             // [rows, cols]; a type above; i4: even cols, g
  TensorView scale;                           // f32, contiguous
  std::optional<TensorView> zero_point = {};  // i32, as scale; u8 needs it
  ScaleMode mode = ScaleMode::dynamic;
};

// Values in the table of a weight whose 4-bit codes are indices (weight.h).
inline constexpr int64_t kTableSize = 16;

//   out = (q - zero_point) * scale       in float, rounded once
//       = table[q] * scale               with a table, of i4 without zero points
struct DequantizeArgs {
  TensorView x;                               // [rows, cols]; i8, u8, i4, e4m3 or e5m2
  TensorView scale;                           // f32, as above
  std::optional<TensorView> zero_point = {};  // i32, shape of scale
  TensorView out;                             // [rows, cols]; f32, f16 or bf16
  std::optional<TensorView> table = {};       // f32 [16], finite
};

void quantize(const QuantizeArgs& args, const Context& ctx = {});
void dequantize(const DequantizeArgs& args, const Context& ctx = {});
bool supports(const QuantizeArgs& args, const Context& ctx = {});
bool supports(const DequantizeArgs& args, const Context& ctx = {});

// Which elements share a scale, derived from its shape; refused, with the shapes that would fit,
// if it is none of the four. For x [rows, cols] element (r, c) uses scale
//   (r / rows_per_scale) * scales_per_row + c / cols_per_scale.
struct ScaleLayout {
  int64_t rows_per_scale = 1;
  int64_t cols_per_scale = 1;
  int64_t scales_per_row = 1;
};
// Inline, because operations, kernels and the CPU all read scales by it.
inline ScaleLayout scale_layout(const TensorView& x, const TensorView& scale) {
  expects(x.rank >= 1, "scale_layout: x has rank 0; give it at least one axis");
  const int64_t cols = x.size(-1);
  int64_t rows = 1;
  for (int d = 0; d < x.rank - 1; ++d) rows *= x.size(d);
  const int64_t whole_rows = rows > 0 ? rows : 1;
  const int64_t whole_cols = cols > 0 ? cols : 1;
  if (scale.rank == 1 && scale.size(0) == 1) return {whole_rows, whole_cols, 1};
  if (scale.rank == 2) {
    const int64_t down = scale.size(0);
    const int64_t across = scale.size(1);
    if (down == 1 && across == 1) return {whole_rows, whole_cols, 1};
    if (down == 1 && across == cols) return {whole_rows, 1, cols};
    if (down == rows && across == 1) return {1, whole_cols, 1};
    const bool divides = across > 0 && cols > 0 && cols % across == 0;
    if (down == rows && divides) return {1, cols / across, across};
  }
  const std::string r = std::to_string(rows), c = std::to_string(cols);
  fail("scale_layout: scale is " + to_string(scale) + "; for x with " + r + " rows of " + c +
       " columns it may be [1], [1, " + c + "], [" + r + ", 1], or [" + r +
       ", n] with n dividing " + c);
}

}  // namespace tessera
