// Reductions of one row of floats, in an order fixed by its length.
// SPDX-License-Identifier: MIT
#pragma once

#include <cmath>
#include <cstdint>

namespace tessera::cpu {

// The sum of f(row[i]) in double, by eight partial sums: eight, so that the loop vectorises and so
// that the error stays far below half an ulp of a float.
template <class F>
double sum_row(const float* row, int64_t count, F&& f) {
  constexpr int kLanes = 8;
  double lanes[kLanes] = {};
  const int64_t whole = count - count % kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += f(row[i + lane]);
  }
  for (int64_t i = whole; i < count; ++i) lanes[i - whole] += f(row[i]);
  const double low = (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
  const double high = (lanes[4] + lanes[5]) + (lanes[6] + lanes[7]);
  return low + high;
}

// The least and the greatest of a run of numbers, with 0 among them: what a quantised range is made
// of. If a value is not finite, absmax and width are NaN.
struct Range {
  float lowest = 0.0f;
  float highest = 0.0f;
  float taint = 0.0f;  // NaN once a value was not finite; comparisons alone would pass over NaN

  void include(float value) {
    lowest = value < lowest ? value : lowest;
    highest = value > highest ? value : highest;
    taint += value * 0.0f;
  }
  void include(const Range& other) {
    include(other.lowest);
    include(other.highest);
    taint += other.taint;
  }
  float absmax() const { return (-lowest > highest ? -lowest : highest) + taint; }
  float width() const { return highest - lowest + taint; }
};

inline Range range_of(const float* row, int64_t count) {
  constexpr int kLanes = 8;
  Range lanes[kLanes];
  const int64_t whole = count - count % kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane].include(row[i + lane]);
  }
  for (int64_t i = whole; i < count; ++i) lanes[0].include(row[i]);
  for (int lane = 1; lane < kLanes; ++lane) lanes[0].include(lanes[lane]);
  return lanes[0];
}

}  // namespace tessera::cpu
