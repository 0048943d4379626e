// How a product with 4-bit weights is cut on Hopper: every plan is one that the kernel can run, and
// its cut of k does not depend on m.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "kernels/gemm/w4/few_plan.h"
#include "kernels/gemm/w4/plan.h"

namespace tessera::kernels {
namespace {

std::string fault(const W4Problem& problem, const W4Plan& plan) {
  const W4Layout& layout = plan.layout;
  if (std::ranges::find(kW4Tokens, plan.tokens) == std::end(kW4Tokens)) return "tokens";
  if (plan.num_m_tiles * plan.tokens < problem.m) return "rows of A are left out";
  const int strips = plan.strips, units = 4 * strips;
  if (plan.tokens > 64 ? strips != 2 : strips != 3 && strips != 4) return "strips";
  if (plan.num_n_tiles * int64_t{64} * strips < problem.n) return "rows of W are left out";
  if (plan.parts < 1 || plan.parts > kW4MaxSplits) return "parts";
  if (plan.splits != 1 && plan.splits != plan.parts) return "splits";
  if (problem.k / kW4StageK < plan.parts) return "a part of k is empty";
  if (plan.num_blocks % plan.splits != 0) return "incomplete clusters";
  if (plan.splits > 1 && plan.num_blocks != plan.splits * plan.num_tiles) {
    return "a cluster has several tiles";
  }
  if (layout.num_stages < 3 || layout.num_stages > kW4MaxStages) return "stages";
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

// The same for the plan of few tokens.
std::string fault(const W4Problem& problem, const W4FewPlan& plan) {
  const W4FewLayout& layout = plan.layout;
  if (plan.tokens < problem.m || (plan.tokens != 8 && plan.tokens != 16)) return "tokens";
  if (plan.parts != plan_w4(problem).parts) return "the parts of k are not those of many tokens";
  if (plan.splits != 1 && plan.splits != plan.parts) return "splits";
  if (int64_t{plan.num_unit_blocks} * plan.units * 16 < problem.n) return "rows are left out";
  if ((int64_t{plan.num_unit_blocks} - 1) * plan.units * 16 >= problem.n) return "an empty block";
  if (plan.num_blocks != plan.num_unit_blocks * plan.splits * problem.batch) return "blocks";
  if (plan.num_warps != plan.units * (plan.parts / plan.splits)) return "warps";
  if (plan.num_warps > kW4FewMaxWarps || plan.num_warps != layout.num_warps) return "warps";
  const int64_t k_blocks = problem.k / kW4StageK;
  const int64_t most = plan.splits == 1 ? k_blocks : (k_blocks + plan.parts - 1) / plan.parts;
  if (layout.row_bytes < most * 2 * kW4StageK) return "A does not fit";
  if (most > int64_t{kW4FewMaxChunks} << layout.chunk_shift) return "too many chunks";
  if (layout.num_rows != problem.m) return "rows of A";
  if (plan.shared_bytes < layout.size()) return "too little shared memory";
  if (plan.shared_bytes > problem.shared_bytes) return "too much shared memory";
  if (layout.tokens() % 16 != 0 || layout.token_pitch() % 32 != 16) return "A's alignment";
  if (layout.ring(0) % 128 != 0 || layout.slot_bytes % 16 != 0) return "the rings' alignment";
  if (layout.ring(0) < layout.tokens() + layout.num_rows * layout.token_pitch()) return "overlap";
  const int groups = problem.group == 0 ? 0 : kW4StageK / problem.group;
  if (layout.slot_bytes < 1024 + groups * (problem.has_zero_points ? 80 : 64)) return "slots";
  if (layout.num_slots != 4 && layout.num_slots != 8) return "number of slots";
  if (layout.ring_bytes() < 2048 + 1024) return "no scratch memory for each warp";
  const int owned = (plan.units + plan.splits - 1) / plan.splits;
  if (plan.splits > 1 && layout.fold_bytes < owned * plan.parts * plan.tokens * 64) return "fold";
  return "";
}

TEST(W4Plan, OfFewTokensIsOneThatTheKernelCanRun) {
  int num_plans = 0;
  for (const int64_t n : {64, 192, 448, 1024, 4096, 6144, 14336, 28672, 128256}) {
    for (const int64_t k : {128, 256, 384, 896, 4096, 14336, 28672}) {
      for (const int64_t m : {1, 2, 8, 9, 16}) {
        for (const int group : {0, 32, 64, 128}) {
          for (const bool has_zero_points : {false, true}) {
            for (const int num_sms : {132, 114, 78}) {
              const W4Problem problem{.m = m,
                                      .n = n,
                                      .k = k,
                                      .group = group,
                                      .has_zero_points = has_zero_points,
                                      .num_sms = num_sms};
              const auto plan = plan_w4_few(problem);
              num_plans += plan.has_value();
              if (plan) {
                EXPECT_EQ(fault(problem, *plan), "")
                    << "m " << m << " n " << n << " k " << k << " group " << group;
              } else {
                EXPECT_GT(m, 1) << "one token always has a plan";
              }
            }
          }
        }
      }
    }
  }
  EXPECT_GT(num_plans, 3000);
  EXPECT_FALSE(plan_w4_few({.m = 17, .n = 4096, .k = 4096}).has_value());
}

TEST(W4Plan, CutsKTheSameForEveryM) {
  for (const int64_t n : {256, 4096, 6144, 28672}) {
    const int parts = plan_w4({.m = 1, .n = n, .k = 4096}).parts;
    for (const int64_t m : {8, 17, 64, 100, 4096}) {
      EXPECT_EQ(plan_w4({.m = m, .n = n, .k = 4096}).parts, parts) << "n " << n << " m " << m;
      const auto few = plan_w4_few({.m = m, .n = n, .k = 4096});
      if (few) {
        EXPECT_EQ(few->parts, parts) << "n " << n << " m " << m;
      }
    }
  }
}

// Nearly all SMs load, whatever the layer.
TEST(W4Plan, CutsTheLayersOfLlama8b) {
  const auto blocks = [](int64_t n, int64_t k) {
    return plan_w4_few({.m = 1, .n = n, .k = k})->num_blocks;
  };
  EXPECT_EQ(blocks(4096, 4096), 128);
  EXPECT_EQ(blocks(4096, 14336), 128);
  EXPECT_EQ(blocks(6144, 4096), 128);
  EXPECT_EQ(blocks(28672, 4096), 128);
  EXPECT_EQ(plan_w4({.m = 64, .n = 4096, .k = 14336}).num_blocks, 88);
  EXPECT_EQ(plan_w4({.m = 128, .n = 4096, .k = 4096}).num_blocks, 128);
}

}  // namespace
}  // namespace tessera::kernels
