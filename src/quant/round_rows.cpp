// One pass over a row: the range of each group, its scale, codes, and what they stand for.
// SPDX-License-Identifier: MIT
#include "quant/round_rows.h"

#include <algorithm>

#include "quant/grid.h"

namespace tessera::quant {
namespace {

// width / steps, but 1 instead of 0, and NaN where the width is not finite.
float scale_for(float width, float steps) {
  const float scale = width / steps;
  const float finite = scale + scale * 0.0f;
  return finite == 0.0f ? 1.0f : finite;
}

// The grid that spans a group. The zero point is computed from the scale before that is rounded to
// the type it is stored in.
Grid whole_grid(const float* w, int64_t count, const QuantFormat& format) {
  const Range range = range_of(w, count);
  const bool has_zero = format.has_zero_points();
  const DType dtype = format.code_dtype();
  const float steps = has_zero ? static_cast<float>(zero_point_max(dtype)) : quant_max(dtype);
  const float width =
      has_zero ? range.highest - range.lowest : std::max(range.highest, -range.lowest);
  Grid grid;
  grid.scale = scale_for(width + range.taint, steps);
  grid.highest = static_cast<int>(steps);
  grid.lowest = has_zero ? 0 : -grid.highest;
  if (has_zero) {
    const float zero = -range.lowest * (1.0f / grid.scale);
    grid.zero = zero > 0.0f ? static_cast<int>(nearest(std::min(zero, steps))) : 0;
  }
  grid.scale = ops::rounded_scale(format.scale_dtype, grid.scale);
  grid.inverse = 1.0f / grid.scale;
  return grid;
}

constexpr int64_t kTile = 128;  // elements whose codes are bytes before they are packed

// Rounds up to kTile values to codes, one in a byte, and computes the values they stand for. NaN
// becomes the zero point.
void round_tile(const float* w, int64_t count, const Grid& grid, uint8_t* codes, float* values) {
  const auto low = static_cast<float>(grid.lowest - grid.zero);
  const auto high = static_cast<float>(grid.highest - grid.zero);
  const float inverse = grid.inverse, scale = grid.scale;
  const int zero = grid.zero;
  for (int64_t i = 0; i < count; ++i) {
    const float steps = w[i] * inverse;
    const float number = steps == steps ? steps : 0.0f;
    const float bounded = number < low ? low : number > high ? high : number;
    const float code = nearest(bounded);
    values[i] = code * scale;
    codes[i] = static_cast<uint8_t>(static_cast<int>(code) + zero);
  }
}

// Packs 4-bit codes two to a byte, the first in the low half.
void pack_nibbles(const uint8_t* codes, int64_t count, uint8_t* to) {
  for (int64_t i = 0; i < count / 2; ++i) {
    to[i] = static_cast<uint8_t>((codes[2 * i] & 15) | codes[2 * i + 1] << 4);
  }
}

}  // namespace

void round_integer_rows(const TensorView& w, const QuantFormat& format, int64_t first,
                        const QuantizedWeight& to, float* values) {
  const int64_t k = w.size(1), group = to.group;
  const bool has_nibbles = format.code_dtype() == DType::i4;
  auto* codes = static_cast<uint8_t*>(to.values.view().data);
  uint8_t bytes[kTile];
  float unused[kTile];
  for (int64_t row = 0; row < w.size(0); ++row) {
    const float* from = w.as<float>() + row * w.stride(0);
    for (int64_t begin = 0; begin < k; begin += group) {
      const Grid grid = whole_grid(from + begin, group, format);
      const int64_t index = (first + row) * (k / group) + begin / group;
      to.scale.view().as<float>()[index] = grid.scale;
      if (format.has_zero_points()) to.zero_point.view().as<int32_t>()[index] = grid.zero;
      for (int64_t col = begin; col < begin + group; col += kTile) {
        const int64_t count = std::min(kTile, begin + group - col), at = (first + row) * k + col;
        round_tile(from + col, count, grid, has_nibbles ? bytes : codes + at,
                   values == nullptr ? unused : values + row * k + col);
        if (has_nibbles) pack_nibbles(bytes, count, codes + at / 2);
      }
    }
  }
}

}  // namespace tessera::quant
