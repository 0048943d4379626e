// Grids of codes: rounding, and the search for the best one, against their definitions.
// SPDX-License-Identifier: MIT
#include "quant/grid.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "tests/quant/cases.h"

namespace tessera::testing {
namespace {

using quant::CodeFormat;
using quant::Grid;
using quant::QuantFormat;

const QuantFormat kFormats[] = {
    {.codes = CodeFormat::int4, .is_symmetric = false, .scale_dtype = DType::bf16},
    {.codes = CodeFormat::int4, .is_symmetric = true, .scale_dtype = DType::f16},
    {.codes = CodeFormat::int8}};

std::vector<float> values_of(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

float defined_code(const Grid& grid, float w) {
  const float code = std::nearbyint(w * grid.inverse) + static_cast<float>(grid.zero);
  return std::fmin(std::fmax(code, static_cast<float>(grid.lowest)),
                   static_cast<float>(grid.highest));
}

TEST(Grid, CodesAreRoundedToEvenAndBounded) {
  for (const QuantFormat& format : kFormats) {
    std::vector<float> w = values_of(128, 41);
    const Grid grid = quant::grid_of(quant::range_of(w.data(), 128), 0.75f, format);
    for (int i = -40; i <= 40; ++i) w.push_back(static_cast<float>(i) * 0.5f * grid.scale);
    for (const float large : {1e30f, -1e30f, 0.0f, -0.0f}) w.push_back(large);
    for (const float value : w) {
      EXPECT_EQ(grid.code_of(value), defined_code(grid, value)) << value;
    }
  }
}

TEST(Grid, TheSearchTakesTheSmallestErrorAndTheWidestOfEquals) {
  for (const QuantFormat& format : kFormats) {
    for (const int64_t count : {1, 7, 128}) {
      const std::vector<float> w = values_of(count, 43);
      std::vector<float> importance = values_of(count, 44);
      for (float& value : importance) value = std::fabs(value) + 0.1f;
      Grid want;
      double least = INFINITY;
      for (int step = 0; step <= 20; ++step) {
        const Grid grid = quant::grid_of(quant::range_of(w.data(), count),
                                         1.0f - 0.5f * static_cast<float>(step) / 20, format);
        double error = 0.0;
        for (size_t i = 0; i < w.size(); ++i) {
          const double difference = double{w[i]} - grid.value_of(grid.code_of(w[i]));
          error += importance[i] * difference * difference;
        }
        if (error < least) want = grid;
        least = std::fmin(least, error);
      }
      const Grid got = quant::search_grid(w.data(), importance.data(), count, format);
      EXPECT_EQ(got.scale, want.scale);
      EXPECT_EQ(got.zero, want.zero);
    }
  }
}

}  // namespace
}  // namespace tessera::testing
