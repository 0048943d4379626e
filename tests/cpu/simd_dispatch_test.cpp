// The choice among the builds of a function for several instruction sets.
// SPDX-License-Identifier: MIT
#include "cpu/simd_dispatch.h"

#include <gtest/gtest.h>

namespace tessera::testing {
namespace {

using cpu::SimdLevel;

int of_baseline() { return 0; }
int of_avx2() { return 1; }
int of_avx512() { return 2; }

TEST(SimdDispatch, LevelsStartAtTheBaselineAndRise) {
  const std::span<const SimdLevel> levels = cpu::simd_levels();
  ASSERT_FALSE(levels.empty());
  for (size_t i = 0; i < levels.size(); ++i) EXPECT_EQ(levels[i], static_cast<SimdLevel>(i));
}

TEST(SimdDispatch, EachLevelHasItsBuild) {
  const cpu::SimdBuilds<int()> builds{&of_baseline, &of_avx2, &of_avx512};
  EXPECT_EQ(builds.at(SimdLevel::baseline)(), 0);
  EXPECT_EQ(builds.at(SimdLevel::avx2)(), 1);
  EXPECT_EQ(builds.at(SimdLevel::avx512)(), 2);
  EXPECT_EQ(builds.best(), builds.at(cpu::simd_levels().back()));
}

TEST(SimdDispatch, AMissingBuildFallsBackToTheNextBelow) {
  const cpu::SimdBuilds<int()> no_avx512{&of_baseline, &of_avx2, nullptr};
  EXPECT_EQ(no_avx512.at(SimdLevel::avx512)(), 1);
  const cpu::SimdBuilds<int()> only_baseline{&of_baseline, nullptr, nullptr};
  EXPECT_EQ(only_baseline.at(SimdLevel::avx512)(), 0);
  EXPECT_EQ(only_baseline.best()(), 0);
}

TEST(SimdDispatch, LevelsHaveNames) {
  EXPECT_EQ(cpu::name(SimdLevel::baseline), "baseline");
  EXPECT_EQ(cpu::name(SimdLevel::avx512), "avx512");
}

}  // namespace
}  // namespace tessera::testing
