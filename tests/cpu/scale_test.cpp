// `scale` on the CPU, with softcap and residual, against float64.
// SPDX-License-Identifier: MIT
#include "cpu/elementwise.h"
#include "tests/cpu/tensors.h"

namespace tessera::testing {
namespace {

class CpuScale : public ::testing::TestWithParam<DType> {};

// Quarters of small integers are exact in every type, so there is nothing to round.
TEST_P(CpuScale, IsExactOnSmallIntegers) {
  constexpr int64_t kCols = 5003;  // more than one task's share, with a ragged end
  Tensor x(GetParam(), {2, kCols}), residual(GetParam(), {2, kCols}), out(GetParam(), {2, kCols});
  int64_t next = 0;
  fill(x, [&] { return static_cast<double>(next++ % 17 - 8); });
  fill(residual, [&] { return static_cast<double>(next++ % 13 - 6); });
  const Values xs = values_of(x), added = values_of(residual);
  cpu::scale({.x = x, .out = out, .scale = 0.75f, .residual = residual.view()});
  const Values with_residual = values_of(out);
  cpu::scale({.x = x, .out = x, .scale = 0.75f});  // in place
  const Values without = values_of(x);
  for (size_t i = 0; i < xs.size(); ++i) {
    ASSERT_EQ(with_residual[i], 0.75 * xs[i] + added[i]) << i;
    ASSERT_EQ(without[i], 0.75 * xs[i]) << i;
  }
}

// The float tanh is within 2 units of its own; product, quotient and sum add one each.
TEST_P(CpuScale, CapsSoftly) {
  Tensor x(GetParam(), {3, 1000}), residual(GetParam(), {3, 1000}), out(GetParam(), {3, 1000});
  fill_normal(x, 5);
  fill_normal(residual, 6);
  constexpr double kScale = 7.0, kCap = 5.0;
  cpu::scale({.x = x, .out = out, .scale = kScale, .softcap = kCap, .residual = residual.view()});
  const Values xs = values_of(x), added = values_of(residual);
  Values want, bound;
  for (size_t i = 0; i < xs.size(); ++i) {
    const double capped = kCap * std::tanh(kScale * xs[i] / kCap);
    want.push_back(capped + added[i]);
    const double before = 6.0 * kFloatUnit * (std::fabs(capped) + std::fabs(added[i]));
    bound.push_back(rounded_once(GetParam(), want.back(), before));
    EXPECT_LE(std::fabs(capped), kCap);
  }
  EXPECT_TRUE(all_close(values_of(out), want, bound));
}

INSTANTIATE_TEST_SUITE_P(Types, CpuScale, ::testing::Values(DType::f32, DType::f16, DType::bf16),
                         [](const auto& test) { return std::string(name(test.param)); });

}  // namespace
}  // namespace tessera::testing
