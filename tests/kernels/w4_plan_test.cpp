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
  if (plan.parts < 1 || plan.parts > kW4MaxParts) return "parts";
  const bool is_large = plan.tokens == kW4LargeTokens;
  if (plan.parts % plan.splits != 0) return "splits";
  if (!is_large && plan.splits != 1 && plan.splits != plan.parts) return "splits";
  if (problem.k / kW4StageK < plan.parts) return "a part of k is empty";
  const bool has_clusters = !is_large && plan.splits > 1;
  if (plan.num_items != plan.splits * plan.num_tiles) return "items";
  if (has_clusters && plan.num_blocks != plan.num_items) return "a cluster has several tiles";
  if (plan.num_blocks > plan.num_items) return "a block without work";
  if (layout.num_stages < 3 || layout.num_stages > kW4MaxStages) return "stages";
  if (layout.size() > problem.shared_bytes) return "too much shared memory";
  if (layout.stage_bytes % 1024 != 0 || layout.fold_bytes % 1024 != 0) return "alignment";
  const int share = (units + plan.parts - 1) / plan.parts;  // units of 16 rows
  const bool has_total = plan.splits == 1 && plan.parts > 1;
  const int sums = has_clusters ? share * plan.parts : has_total ? units : 0;
  const int scratch = has_clusters ? 0 : units * 1024;
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

// Large tiles: blocks share k where there are few tiles, and an SM is not left idle for it.
TEST(W4Plan, SharesLargeTilesToFillTheGpu) {
  EXPECT_EQ(plan_w4({.m = 128, .n = 4096, .k = 4096}).num_blocks, 128);
  EXPECT_EQ(plan_w4({.m = 256, .n = 4096, .k = 14336}).num_blocks, 128);
  EXPECT_EQ(plan_w4({.m = 128, .n = 6144, .k = 4096}).splits, 2);
  EXPECT_EQ(plan_w4({.m = 4096, .n = 4096, .k = 4096}).splits, 1);
}

// The parts of k that may be chosen for a weight of another shape, or on the next measurement.
TEST(W4Plan, RunsWithEveryNumberOfParts) {
  for (const int parts : {1, 2, 4, 8}) {
    for (const int64_t n : {64, 1024, 4096, 6144, 14336, 28672, 128256}) {
      for (const int64_t m : {1, 32, 64, 128, 1024}) {
        const W4Problem problem{.m = m, .n = n, .k = 4096};
        EXPECT_EQ(fault(problem, make_w4_plan(problem, parts)), "")
            << "m " << m << " n " << n << " parts " << parts;
      }
    }
  }
}

// The same for the plan of few tokens.
std::string fault(const W4Problem& problem, const W4FewPlan& plan) {
  const W4FewLayout& layout = plan.layout;
  if (plan.tokens < problem.m || plan.tokens > kW4FewMaxTokens) return "tokens";
  if (!has_w4_few_tile(plan.tokens, problem.group, plan.wide)) return "no such tile";
  if (plan.parts % plan.splits != 0) return "splits";
  const int64_t unit_rows = 16 * plan.wide;
  if (plan.num_unit_blocks * plan.units * unit_rows < problem.n) return "rows are left out";
  if ((plan.num_unit_blocks - 1) * plan.units * unit_rows >= problem.n) return "an empty block";
  if (plan.num_blocks != plan.num_unit_blocks * plan.splits * problem.batch) return "blocks";
  if (plan.num_warps != plan.units * (plan.parts / plan.splits)) return "warps";
  if (plan.num_warps > kW4FewMaxWarps || plan.num_warps != layout.num_warps) return "warps";
  const int64_t k_blocks = problem.k / kW4StageK;
  const int64_t most = (k_blocks + plan.splits - 1) / plan.splits;
  if (layout.row_bytes < most * 2 * kW4StageK) return "A does not fit";
  if (most > int64_t{kW4FewMaxChunks} << layout.chunk_shift) return "too many chunks";
  if (layout.num_rows != problem.m) return "rows of A";
  if (plan.shared_bytes < layout.size()) return "too little shared memory";
  if (plan.shared_bytes > problem.shared_bytes) return "too much shared memory";
  if (layout.tokens() % 16 != 0 || layout.token_pitch() % 32 != 16) return "A's alignment";
  if (layout.ring(0) % 128 != 0 || layout.ring_bytes % 16 != 0) return "the rings' alignment";
  if (layout.ring(0) < layout.tokens_end()) return "overlap";
  const int sum_bytes = plan.wide * plan.tokens * 64;  // of a unit
  if (layout.ring_bytes < sum_bytes || layout.ring_bytes < 1024) return "no room in a ring";
  const int owned = (plan.units + plan.splits - 1) / plan.splits;
  if (plan.splits > 1 && layout.fold_bytes < owned * plan.parts * sum_bytes) return "fold";
  if (owned > plan.num_warps) return "more units to add up than warps";
  return "";
}

constexpr int64_t kFewRows[] = {64, 192, 448, 1024, 4096, 6144, 14336, 28672, 128256};
constexpr int64_t kFewTokens[] = {1, 2, 4, 5, 8, 9, 16};

TEST(W4Plan, OfFewTokensIsOneThatTheKernelCanRun) {
  int num_plans = 0;
  for (const int64_t n : kFewRows) {
    for (const int64_t k : {128, 256, 384, 896, 4096, 14336, 28672}) {
      for (const int64_t m : kFewTokens) {
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
                EXPECT_EQ(plan->parts, plan_w4(problem).parts) << "n " << n << " k " << k;
              } else {
                EXPECT_GT(m, 1) << "one token always has a plan";
              }
            }
          }
        }
      }
    }
  }
  EXPECT_GT(num_plans, 6000);
  EXPECT_FALSE(plan_w4_few({.m = 17, .n = 4096, .k = 4096}).has_value());
}

// No block has so few rows that it reads more of A than of W.
TEST(W4Plan, OfFewTokensReadsLessOfAThanOfW) {
  for (int64_t n = 4096; n <= 300'000; n += 1024) {
    for (const int64_t k : {2048, 4096, 8192, 14336}) {
      for (const int64_t m : {4, 8, 16}) {
        const auto plan = plan_w4_few({.m = m, .n = n, .k = k});
        if (!plan) continue;
        const int rows = plan->units * 16 * plan->wide;  // of W, with half a byte each
        EXPECT_LT(2 * m, rows / 2) << "m " << m << " n " << n << " k " << k;
      }
    }
  }
}

// Cuts that the rules do not name today.
TEST(W4Plan, OfFewTokensCanBeCutInOtherWays) {
  int num_plans = 0;
  for (const int64_t n : kFewRows) {
    for (const int64_t m : kFewTokens) {
      for (const int parts : {1, 2, 4, 8}) {
        for (const int splits : {1, 2, 4, 8}) {
          for (const int wide : {1, 2}) {
            for (const int units : {0, 1, 3, 14}) {
              const W4Problem problem{.m = m, .n = n, .k = 4096};
              const W4FewCut cut{.wide = wide, .units = units, .splits = splits, .per_sm = 1};
              const auto plan = make_w4_few_plan(problem, parts, cut);
              num_plans += plan.has_value();
              if (plan) {
                EXPECT_EQ(fault(problem, *plan), "")
                    << "m " << m << " n " << n << " parts " << parts << " splits " << splits;
              }
            }
          }
        }
      }
    }
  }
  EXPECT_GT(num_plans, 2000);
}

TEST(W4Plan, CutsKTheSameForEveryM) {
  for (const int64_t n : {256, 4096, 6144, 28672, 128256}) {
    const int parts = plan_w4({.m = 1, .n = n, .k = 4096}).parts;
    for (const int64_t m : {8, 17, 64, 100, 4096}) {
      for (const int num_sms : {132, 78}) {
        const W4Problem problem{.m = m, .n = n, .k = 4096, .num_sms = num_sms};
        EXPECT_EQ(plan_w4(problem).parts, parts) << "n " << n << " m " << m;
        const auto few = plan_w4_few(problem);
        if (few) {
          EXPECT_EQ(few->parts, parts) << "n " << n << " m " << m;
        }
      }
    }
  }
}

struct Choice {
  int64_t m, n, k;
  int parts, wide, units, splits;
  int kilobytes;  // of a block
};

// The cuts that were measured to be the fastest, or within 2 %:
// docs/results/h200/gemm_w4_tried.txt.
TEST(W4Plan, CutsTheLayersOfLlama8b) {
  constexpr Choice kChoices[] = {
      {1, 6144, 4096, 4, 1, 2, 1, 77},     {8, 6144, 4096, 4, 2, 4, 4, 75},
      {16, 6144, 4096, 4, 2, 7, 4, 113},   {1, 4096, 4096, 4, 1, 1, 1, 75},
      {8, 4096, 4096, 4, 1, 4, 4, 56},     {16, 4096, 4096, 4, 1, 6, 4, 92},
      {1, 28672, 4096, 2, 2, 4, 1, 77},    {8, 28672, 4096, 2, 2, 7, 2, 100},
      {16, 28672, 4096, 2, 2, 14, 2, 213}, {1, 14336, 4096, 2, 1, 2, 1, 44},
      {8, 14336, 4096, 2, 2, 7, 2, 113},   {16, 14336, 4096, 2, 2, 7, 2, 140},
      {1, 4096, 14336, 4, 1, 2, 2, 75},    {8, 4096, 14336, 4, 1, 9, 4, 140},
      {16, 4096, 14336, 4, 1, 9, 4, 202},  {1, 128256, 4096, 1, 1, 2, 1, 37},
      {8, 128256, 4096, 1, 2, 11, 1, 159}, {16, 128256, 4096, 1, 2, 11, 1, 223},
  };
  for (const Choice& choice : kChoices) {
    SCOPED_TRACE(testing::Message() << "m " << choice.m << " n " << choice.n << " k " << choice.k);
    const auto plan = plan_w4_few({.m = choice.m, .n = choice.n, .k = choice.k});
    ASSERT_TRUE(plan.has_value());
    EXPECT_EQ(plan->parts, choice.parts);
    EXPECT_EQ(plan->wide, choice.wide);
    EXPECT_EQ(plan->units, choice.units);
    EXPECT_EQ(plan->splits, choice.splits);
    EXPECT_EQ(plan->shared_bytes / 1024, choice.kilobytes);
  }
  EXPECT_EQ(plan_w4({.m = 64, .n = 4096, .k = 14336}).num_blocks, 88);
  EXPECT_EQ(plan_w4({.m = 128, .n = 4096, .k = 4096}).num_blocks, 128);
}

}  // namespace
}  // namespace tessera::kernels
