// How a product with 4-bit weights is cut on Hopper: every plan is one that the kernel can run, and
// its cut of k does not depend on m.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "kernels/gemm/w4/plan.h"

namespace tessera::kernels {
namespace {

std::string fault(const W4Problem& problem, const W4Plan& plan) {
  const W4Layout& layout = plan.layout;
  if (std::ranges::find(kW4Tokens, plan.tokens) == std::end(kW4Tokens)) return "tokens";
  if (plan.num_m_tiles * plan.tokens < problem.m) return "rows of A are left out";
  const int strips = w4_strips(plan.tokens), units = 4 * strips;
  if (plan.num_n_tiles * int64_t{64} * strips < problem.n) return "rows of W are left out";
  if (plan.parts < 1 || plan.parts > kW4MaxSplits) return "parts";
  if (plan.splits != 1 && plan.splits != plan.parts) return "splits";
  if (problem.k / kW4StageK < plan.parts) return "a part of k is empty";
  if (plan.num_blocks % plan.splits != 0) return "incomplete clusters";
  if (plan.splits > 1 && plan.num_blocks != plan.splits * plan.num_tiles) {
    return "a cluster has several tiles";
  }
  const int fewest = is_w4_copied_by_tma(plan.tokens) ? 3 : kW4Lag + 1;
  if (layout.num_stages < fewest || layout.num_stages > kW4MaxStages) return "stages";
  if (layout.size() > problem.shared_bytes) return "too much shared memory";
  if (layout.stage_bytes % 1024 != 0 || layout.fold_bytes % 1024 != 0) return "alignment";
  const int share = (units + plan.parts - 1) / plan.parts;  // units of 16 rows
  const int sums = plan.splits > 1 ? share * plan.parts : plan.parts > 1 ? units : 0;
  const int scratch = plan.splits > 1 ? 0 : units * 1024;
  if (layout.fold_bytes < sums * 16 * plan.tokens * 4 + scratch) return "sums do not fit";
  if (layout.fold_bytes < units * 1024) return "no scratch memory for each warp";
  return "";
}

TEST(W4Plan, IsOneThatTheKernelCanRun) {
  for (const int64_t n : {64, 192, 256, 1024, 4096, 6144, 14336, 28672, 128256}) {
    for (const int64_t k : {128, 256, 384, 2048, 4096, 14336}) {
      for (const int64_t m : {1, 8, 9, 16, 17, 32, 33, 64, 65, 300, 4096}) {
        for (const int group : {0, 32, 64, 128}) {
          for (const bool has_zero_points : {false, true}) {
            W4Problem problem{.m = m, .n = n, .k = k};
            problem.group = group;
            problem.has_zero_points = has_zero_points;
            for (const int num_sms : {132, 114, 78}) {
              problem.num_sms = num_sms;
              EXPECT_EQ(fault(problem, plan_w4(problem)), "")
                  << "m " << m << " n " << n << " k " << k << " group " << group;
            }
          }
        }
      }
    }
  }
}

TEST(W4Plan, CutsKTheSameForEveryM) {
  for (const int64_t n : {256, 4096, 6144, 28672}) {
    const int parts = plan_w4({.m = 1, .n = n, .k = 4096}).parts;
    for (const int64_t m : {8, 17, 64, 100, 4096}) {
      EXPECT_EQ(plan_w4({.m = m, .n = n, .k = 4096}).parts, parts) << "n " << n << " m " << m;
    }
  }
}

// Fewer, longer parts of k were measured to be faster than a block for every SM.
TEST(W4Plan, CutsTheLayersOfLlama8b) {
  const auto blocks = [](int64_t n, int64_t k) {
    return plan_w4({.m = 1, .n = n, .k = k}).num_blocks;
  };
  EXPECT_EQ(blocks(4096, 4096), 64);
  EXPECT_EQ(blocks(4096, 14336), 64);
  EXPECT_EQ(blocks(6144, 4096), 96);
  EXPECT_EQ(blocks(28672, 4096), 112);
}

}  // namespace
}  // namespace tessera::kernels
