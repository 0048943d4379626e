// The values that codes of one group can stand for, and the choice of a group's scale.
// SPDX-License-Identifier: MIT
#pragma once

#include <cmath>
#include <cstdint>

#include "tessera/core/convert.h"
#include "tessera/quant/quantized_weight.h"

namespace tessera::quant {

// `value` rounded to the type scales are stored in.
inline float rounded_to(DType dtype, float value) {
  if (dtype == DType::bf16) return to_float(from_float<Bf16>(value));
  if (dtype == DType::f16) return to_float(from_float<F16>(value));
  return value;
}

// code = round(w / scale) + zero within [lowest, highest], as quantize of ops/quantize.h rounds it.
struct Grid {
  float scale = 1.0f;
  float inverse = 1.0f;
  int zero = 0;
  int lowest = 0;
  int highest = 0;

  float code_of(float w) const {
    const float code = std::nearbyint(w * inverse) + static_cast<float>(zero);
    const auto low = static_cast<float>(lowest), high = static_cast<float>(highest);
    return code < low ? low : code > high ? high : code;
  }
  float value_of(float code) const { return (code - static_cast<float>(zero)) * scale; }
};

// The grid of `count` values whose range is shrunk by `factor`.
inline Grid grid_of(const float* w, int64_t count, float factor, const QuantFormat& format) {
  float lowest = 0.0f, highest = 0.0f;
  for (int64_t i = 0; i < count; ++i) {
    lowest = w[i] < lowest ? w[i] : lowest;
    highest = w[i] > highest ? w[i] : highest;
  }
  Grid grid;
  const bool has_zero = format.has_zero_points();
  const DType dtype = format.code_dtype();
  const float width = has_zero ? highest - lowest : std::fmax(highest, -lowest);
  const float steps = has_zero ? static_cast<float>(zero_point_max(dtype)) : quant_max(dtype);
  const float scale = rounded_to(format.scale_dtype, width * factor / steps);
  if (scale > 0.0f) grid.scale = scale;
  grid.inverse = 1.0f / grid.scale;
  grid.highest = static_cast<int>(steps);
  grid.lowest = has_zero ? 0 : -grid.highest;
  if (has_zero) {
    const float zero = std::nearbyint(-lowest * factor * grid.inverse);
    grid.zero = static_cast<int>(std::fmin(std::fmax(zero, 0.0f), steps));
  }
  return grid;
}

// Of 21 grids, from the whole range to half of it, the one with the smallest weighted error; the
// widest of equals.
inline Grid search_grid(const float* w, const float* importance, int64_t count,
                        const QuantFormat& format) {
  constexpr int kSteps = 20;
  Grid best;
  double least = -1.0;
  for (int step = 0; step <= kSteps; ++step) {
    const Grid grid = grid_of(w, count, 1.0f - 0.5f * static_cast<float>(step) / kSteps, format);
    double error = 0.0;
    for (int64_t i = 0; i < count; ++i) {
      const double difference = double{w[i]} - grid.value_of(grid.code_of(w[i]));
      error += importance[i] * difference * difference;
    }
    if (least < 0.0 || error < least) {
      least = error;
      best = grid;
    }
  }
  return best;
}

}  // namespace tessera::quant
