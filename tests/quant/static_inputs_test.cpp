// The static scales of 8-bit inputs.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tessera/quant/quantizers.h"
#include "tests/core/message_of.h"
#include "tests/quant/cases.h"

namespace tessera::testing {
namespace {

// The squared error of rounding x to 8-bit codes with one scale.
double rounding_error(const Tensor& x, float scale) {
  double sum = 0;
  for (int64_t i = 0; i < x.view().num_elements(); ++i) {
    const double value = x.view().as<float>()[i];
    const double code = std::clamp(std::nearbyint(value / scale), -127.0, 127.0);
    sum += (value - code * scale) * (value - code * scale);
  }
  return sum;
}

TEST(StaticInputs, TheBoundHasAboutTheLeastSquaredError) {
  Tensor x = random_matrix(400, 64, 30);  // normal, but for a few outliers
  for (int64_t i = 0; i < 400 * 64; i += 997) x.view().as<float>()[i] *= 12.0f;
  const quant::InputStats stats = stats_of(x);
  const float largest = std::ranges::max(stats.max_abs());
  const float scale = quant::static_input_scale(stats, DType::i8);
  double least = rounding_error(x, largest / 127);
  EXPECT_LT(rounding_error(x, scale), 0.9 * least);
  for (int i = 1; i < 200; ++i) {
    const float other = largest / 127 * std::exp2(-static_cast<float>(i) / 40);
    least = std::min(least, rounding_error(x, other));
  }
  EXPECT_LT(rounding_error(x, scale), 1.05 * least);
  EXPECT_EQ(quant::static_input_scale(stats, DType::e4m3), largest / 448);
}

TEST(StaticInputs, NothingIsCutOffWhereAllInputsAreLarge) {
  Tensor x(DType::f32, {64, 8});
  for (int64_t i = 0; i < 64 * 8; ++i) x.view().as<float>()[i] = i % 2 == 0 ? 3.0f : -3.0f;
  EXPECT_FLOAT_EQ(quant::static_input_scale(stats_of(x), DType::i8), 3.0f / 127);
  EXPECT_EQ(quant::static_input_scale(stats_of(Tensor::zeros(DType::f32, {4, 8})), DType::i8), 1);
  quant::InputStats divided = stats_of(x);
  divided.divide_columns(std::vector<float>(8, 2.0f));
  EXPECT_NE(message_of([&] { quant::static_input_scale(divided, DType::i8); }).find("anew"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera::testing
