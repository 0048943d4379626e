// The values that codes of one group can stand for, and the choice of a group's scale.
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "ops/round_scales.h"
#include "tessera/quant/quantized_weight.h"

namespace tessera::quant {

// The nearest integer, ties to even, for |value| below 2^22. Adding 1.5 * 2^23 leaves no bits for a
// fraction, so the addition rounds.
inline float nearest(float value) {
  constexpr float kWhole = 0x1.8p23f;
  return (value + kWhole) - kWhole;
}

// code = round(w / scale) + zero within [lowest, highest], as quantize of ops/quantize.h rounds it.
struct Grid {
  float scale = 1.0f;
  float inverse = 1.0f;
  int zero = 0;
  int lowest = 0;
  int highest = 0;

  // Bounded first, so that rounding is two additions and loops over it become vectors; the bounds
  // are integers, so the order does not matter.
  float code_of(float w) const {
    const auto low = static_cast<float>(lowest - zero), high = static_cast<float>(highest - zero);
    const float steps = w * inverse;
    const float bounded = steps < low ? low : steps > high ? high : steps;
    return nearest(bounded) + static_cast<float>(zero);
  }
  float value_of(float code) const { return (code - static_cast<float>(zero)) * scale; }
};

// The range of a group's values, widened to contain 0. Comparisons skip NaN, so a value that is
// not finite shows in `taint`: it is then NaN, and 0 otherwise.
struct Range {
  float lowest = 0.0f;
  float highest = 0.0f;
  float taint = 0.0f;
};

// Sixteen lanes, so that the compiler makes vectors of them; the order does not change a minimum.
inline Range range_of(const float* w, int64_t count) {
  constexpr int kLanes = 16;
  float lowest[kLanes] = {}, highest[kLanes] = {}, taint[kLanes] = {};
  const auto include = [&](int lane, float value) {
    lowest[lane] = value < lowest[lane] ? value : lowest[lane];
    highest[lane] = value > highest[lane] ? value : highest[lane];
    taint[lane] += value * 0.0f;
  };
  const int64_t whole = count - count % kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) include(lane, w[i + lane]);
  }
  for (int64_t i = whole; i < count; ++i) include(0, w[i]);
  Range range;
  for (int lane = 0; lane < kLanes; ++lane) {
    range.lowest = std::min(range.lowest, lowest[lane]);
    range.highest = std::max(range.highest, highest[lane]);
    range.taint += taint[lane];
  }
  return range;
}

// The grid of values whose range is shrunk by `factor`.
inline Grid grid_of(const Range& range, float factor, const QuantFormat& format) {
  Grid grid;
  const bool has_zero = format.has_zero_points();
  const DType dtype = format.code_dtype();
  const float width =
      has_zero ? range.highest - range.lowest : std::fmax(range.highest, -range.lowest);
  const float steps = has_zero ? static_cast<float>(zero_point_max(dtype)) : quant_max(dtype);
  const float scale = ops::rounded_to(format.scale_dtype, width * factor / steps);
  if (scale > 0.0f) grid.scale = scale;
  grid.inverse = 1.0f / grid.scale;
  grid.highest = static_cast<int>(steps);
  grid.lowest = has_zero ? 0 : -grid.highest;
  if (has_zero) {
    const float zero = nearest(-range.lowest * factor * grid.inverse);
    grid.zero = static_cast<int>(std::fmin(std::fmax(zero, 0.0f), steps));
  }
  return grid;
}

// Of 21 grids, from the whole range to half of it, the one with the smallest weighted error; the
// widest of equals. Each grid is a lane of a vector, and all take the same value at a time.
inline Grid search_grid(const float* w, const float* importance, int64_t count,
                        const QuantFormat& format) {
  constexpr int kSteps = 20, kLanes = 24;  // a multiple of a vector; the last is repeated
  const Range range = range_of(w, count);
  Grid grids[kLanes];
  float inverses[kLanes], scales[kLanes], lows[kLanes], highs[kLanes];
  double errors[kLanes] = {};
  for (int i = 0; i < kLanes; ++i) {
    const float shrunk = 1.0f - 0.5f * static_cast<float>(i < kSteps ? i : kSteps) / kSteps;
    grids[i] = grid_of(range, shrunk, format);
    inverses[i] = grids[i].inverse;
    scales[i] = grids[i].scale;
    lows[i] = static_cast<float>(grids[i].lowest - grids[i].zero);
    highs[i] = static_cast<float>(grids[i].highest - grids[i].zero);
  }
  for (int64_t i = 0; i < count; ++i) {
    const float value = w[i];
    const double weight = importance[i];
    for (int lane = 0; lane < kLanes; ++lane) {
      const float steps = value * inverses[lane];
      const float bounded = steps < lows[lane]    ? lows[lane]
                            : steps > highs[lane] ? highs[lane]
                                                  : steps;
      const double difference = double{value} - nearest(bounded) * scales[lane];
      errors[lane] += weight * difference * difference;
    }
  }
  int best = 0;
  for (int i = 1; i <= kSteps; ++i) {
    if (errors[i] < errors[best]) best = i;
  }
  return grids[best];
}

}  // namespace tessera::quant
