// What GPTQ computes by matrix products: sums of inputs, and the factor of the inverse by blocks.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "quant/inverse_factor.h"
#include "tessera/ops/copy.h"
#include "tests/quant/cases.h"

namespace tessera::testing {
namespace {

// Inputs of 16 bits are multiplied some at a time, with the sums of the same inputs in float.
TEST(Stats, InputsThatWaitHaveTheSameSums) {
  const int64_t rows = 300, k = 48;
  const Tensor x = correlated_inputs(rows, k, 35), typed(DType::bf16, {rows, k});
  copy({.x = x, .out = typed});
  copy({.x = typed, .out = x});
  const quant::InputStats want = stats_of(x);
  quant::InputStats got(k, quant::InputSums::all, {}, 128);
  for (int64_t row = 0; row < rows; row += 60) got.add(typed.view().slice(0, row, row + 60));
  got.finish();
  EXPECT_EQ(got.num_rows(), rows);
  EXPECT_EQ(got.max_abs(), want.max_abs());
  for (int64_t i = 0; i < k * k; ++i) {
    const auto size = [&](int64_t at) { return want.products().as<float>()[at * (k + 1)]; };
    ASSERT_NEAR(got.products().as<float>()[i], want.products().as<float>()[i],
                1e-5 * std::sqrt(size(i / k) * size(i % k)))
        << i;
  }
}

TEST(InverseFactor, ByBlocksIsTheFactorInReverse) {
  for (const int64_t k : {5, 256, 600}) {
    const quant::InputStats stats = stats_of(correlated_inputs(2 * k, k, 33));
    std::vector<double> h(static_cast<size_t>(k * k));
    const Tensor reverse(DType::f32, {k, k}), want(DType::f32, {k, k}), got(DType::f32, {k, k});
    for (int64_t i = 0; i < k * k; ++i) {
      const float value = stats.products().as<float>()[i] / static_cast<float>(k) +
                          (i % (k + 1) == 0 ? 1.0f : 0.0f);
      h[static_cast<size_t>(i)] = value;
      reverse.view().as<float>()[k * k - 1 - i] = value;
    }
    ASSERT_TRUE(quant::factor_inverse(h, k, want));
    ASSERT_TRUE(quant::factor_inverse_by_blocks(reverse, got, {}));
    for (int64_t i = 0; i < k * k; ++i) {
      ASSERT_NEAR(got.view().as<float>()[k * k - 1 - i], want.view().as<float>()[i], 2e-4)
          << k << " at " << i;
    }
    reverse.view().as<float>()[k + 1] = -1e6f;
    EXPECT_FALSE(quant::factor_inverse_by_blocks(reverse, got, {}));
  }
}

}  // namespace
}  // namespace tessera::testing
