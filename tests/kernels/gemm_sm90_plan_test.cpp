// How the Hopper matrix product is cut: every plan is one that the kernel can run, and the common
// layers get the tiles they were made for.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "kernels/gemm/sm90/plan.h"

namespace tessera::kernels {
namespace {

constexpr int64_t kHopperBytes = 227 * 1024;
constexpr int64_t kFewerBytes = 163 * 1024;  // as on sm_80: nothing may count on 227 KB

bool is_compiled(Sm90Shape shape, Sm90Operands operands = Sm90Operands::values) {
  const auto is_in = [&](const auto& list) { return std::ranges::find(list, shape) != list.end(); };
  switch (operands) {
    case Sm90Operands::fp8:
      return is_in(shapes_of(Sm90TilesCodes1{})) || is_in(shapes_of(Sm90TilesFp8{}));
    case Sm90Operands::int8:
      return is_in(shapes_of(Sm90TilesCodes1{})) || is_in(shapes_of(Sm90TilesInt8{}));
    case Sm90Operands::unsigned_int8: return is_in(shapes_of(Sm90TilesUnsigned{}));
    case Sm90Operands::promoted: return is_in(shapes_of(Sm90TilesPromoted{}));
    case Sm90Operands::values: break;
  }
  const auto one = shapes_of(Sm90Tiles1{});
  const auto two = shapes_of(Sm90Tiles2{});
  const auto split = shapes_of(Sm90TilesSplit{});
  if (shape.splits > 1) return std::ranges::find(split, shape) != split.end();
  return shape.warpgroups == 1 ? std::ranges::find(one, shape) != one.end()
                               : std::ranges::find(two, shape) != two.end();
}

// What the copy engine, wgmma and the block's shared memory ask for.
std::string layout_fault(const Sm90Problem& problem, const Sm90Plan& plan) {
  const Sm90Layout& layout = plan.layout;
  const int rows = 64 * plan.shape.warpgroups;
  const int out_cols = problem.is_gated ? plan.shape.cols / 2 : plan.shape.cols;
  const int fewest_stages = problem.shared_bytes >= kHopperBytes ? 3 : 2;
  if (layout.num_stages < fewest_stages || layout.num_stages > kMaxStages) return "stages";
  if (layout.size() > problem.shared_bytes) return "too much shared memory";
  if (plan.a_rows % 8 != 0 || plan.a_rows > rows) return "rows of a slot of A";
  if (plan.a_rows < std::min<int64_t>(problem.m, rows)) return "a slot of A lacks rows";
  if (layout.a_slot_bytes < plan.a_rows * kSlabBytes * plan.shape.slabs) return "slot of A";
  if (layout.b_slot_bytes < plan.shape.cols * kSlabBytes * plan.shape.slabs) return "slot of B";
  for (const int bytes : {layout.a_slot_bytes, layout.b_slot_bytes, layout.a(0), layout.b(0)}) {
    if (bytes % 1024 != 0) return "the swizzle repeats every 1024 bytes, and slots do not";
  }
  if (layout.a(layout.num_stages) > layout.b(0)) return "slots of A run into those of B";
  if (layout.barriers() < layout.b(layout.num_stages) || layout.barriers() % 8 != 0) {
    return "barriers";
  }
  // wgmma reads all rows of a tile, those beyond the last slot of A included.
  const int last_slab =
      layout.a(layout.num_stages - 1) + (plan.shape.slabs - 1) * plan.a_rows * kSlabBytes;
  if (last_slab + rows * kSlabBytes > layout.size()) return "A is read beyond shared memory";
  if (layout.store_bytes > 0) {
    if (plan.shape.warpgroups != 2 || !problem.stages_out) return "stages what it must not";
    if (out_cols % 16 != 0) return "a row of a staged box is no multiple of 32 bytes";
  }
  return "";
}

// Whether `num_tiles` tiles cover `size`, and each of them something of it.
bool covers(int64_t num_tiles, int64_t tile, int64_t size) {
  return num_tiles * tile >= size && (num_tiles - 1) * tile < size;
}

int layout_ring_bytes(const Sm90Plan& plan) {
  return plan.layout.b(plan.layout.num_stages) - plan.layout.a(0);
}

// Empty, or the first rule that the plan breaks.
std::string fault_of(const Sm90Problem& problem, const Sm90Plan& plan) {
  if (!is_compiled(plan.shape)) return "no such tile is compiled";
  const std::string fault = layout_fault(problem, plan);
  if (!fault.empty()) return fault;
  const int sharers = plan.shares_b ? 2 : plan.shape.splits;
  if (plan.cluster != sharers) return "cluster";
  const int m_tile = 64 * plan.shape.warpgroups * (plan.shares_b ? 2 : 1);
  if (!covers(plan.num_m_tiles, m_tile, problem.m)) return "tiles of m";
  if (!covers(plan.num_n_tiles, plan.shape.cols, problem.n)) return "tiles of n";
  if (plan.num_tiles != plan.num_m_tiles * plan.num_n_tiles * problem.batch) return "tiles";
  const bool is_split = plan.shape.splits > 1;
  if (is_split && plan.num_blocks != plan.num_tiles * sharers) return "one tile a cluster";
  if (plan.num_blocks < 1 || (!is_split && plan.num_blocks > problem.num_sms)) return "blocks";
  // Partial sums are exchanged where the ring was.
  const int ring_bytes = layout_ring_bytes(plan);
  if (is_split && 2 * 64 * plan.shape.warpgroups * plan.shape.cols > ring_bytes) return "exchange";
  if (plan.num_blocks % sharers != 0) return "half a cluster";
  if (plan.num_blocks / sharers > plan.num_tiles) return "blocks without a tile";
  if (plan.num_early < 1 || plan.num_early > plan.layout.num_stages) return "early loads";
  if (plan.num_by_hand < 0 || plan.num_by_hand > plan.num_early) return "loads by hand";
  const int64_t pieces = problem.m * 8 * plan.shape.slabs * plan.num_by_hand;
  if (plan.num_by_hand > 0 && pieces > 128 * kFirstAPieces) return "pieces by hand";
  if (plan.group < 1) return "group";
  return "";
}

std::string text_of(const Sm90Problem& p, const Sm90Plan& plan) {
  return testing::PrintToString(plan.shape.warpgroups) + " x " +
         testing::PrintToString(plan.shape.cols) + " x " +
         testing::PrintToString(plan.shape.slabs) + " for m=" + testing::PrintToString(p.m) +
         " n=" + testing::PrintToString(p.n) + " k=" + testing::PrintToString(p.k) +
         " batch=" + testing::PrintToString(p.batch) +
         " gated=" + testing::PrintToString(p.is_gated) +
         " stages_out=" + testing::PrintToString(p.stages_out) +
         " num_sms=" + testing::PrintToString(p.num_sms) +
         " shared_bytes=" + testing::PrintToString(p.shared_bytes);
}

// Every m that few rows go by, and both sides of the edges of tiles and of waves beyond.
std::vector<int64_t> sizes_of_m() {
  std::vector<int64_t> sizes;
  for (int64_t m = 1; m <= 300; ++m) sizes.push_back(m);
  for (int64_t m = 384; m <= 20000; m += m < 4096 ? 64 : 992) {
    for (const int64_t near : {m - 1, m, m + 1}) sizes.push_back(near);
  }
  return sizes;
}

// The first problem of a chip whose plan breaks a rule, with the rule; empty where there is none.
std::string first_fault(int num_sms, int64_t shared_bytes) {
  for (const int64_t m : sizes_of_m()) {
    for (const int64_t n : {8, 16, 320, 1000, 4096, 6144, 14336, 28672, 128256}) {
      for (const int64_t k : {64, 4096, 14336}) {
        for (const int64_t batch : {1, 3, 64}) {
          for (const int options : {0, 1, 2, 3}) {
            const Sm90Problem problem{
                m, n, k, batch, options % 2 != 0, options / 2 != 0, num_sms, shared_bytes};
            const Sm90Plan plan = plan_sm90(problem);
            const std::string fault = fault_of(problem, plan);
            if (!fault.empty()) return fault + ": " + text_of(problem, plan);
            const std::optional<Sm90Plan> split = plan_sm90_split(problem);
            if (!split) continue;
            const std::string split_fault = fault_of(problem, *split);
            if (!split_fault.empty()) return split_fault + ": " + text_of(problem, *split);
          }
        }
      }
    }
  }
  return "";
}

class Sm90Plans : public testing::TestWithParam<int64_t> {};

TEST_P(Sm90Plans, CanAllBeRun) {
  for (const int num_sms : {132, 114, 78, 2, 1}) EXPECT_EQ(first_fault(num_sms, GetParam()), "");
}

// Of every tile, whether or not a plan chooses it today.
TEST_P(Sm90Plans, OfEveryTileAndEveryWayToShareCanBeRun) {
  const auto check = [](Sm90Shape shape) {
    for (const bool shares_b : {false, true}) {
      if (shares_b && shape.splits > 1) continue;  // a cluster does one or the other
      for (const int64_t m : {1, 8, 9, 16, 17, 63, 64, 65, 128, 129, 256, 257, 4096}) {
        for (const int options : {0, 1, 2, 3}) {
          if (shape.slabs == 4 && m > 32) continue;  // deep stages are for small slots of A
          const Sm90Problem problem{m,   4096,      4096, 1, options % 2 != 0, options / 2 != 0,
                                    132, GetParam()};
          const Sm90Plan plan = make_plan(problem, shape, shares_b);
          ASSERT_EQ(fault_of(problem, plan), "") << text_of(problem, plan);
        }
      }
    }
  };
  for (const Sm90Shape shape : shapes_of(Sm90Tiles1{})) check(shape);
  for (const Sm90Shape shape : shapes_of(Sm90Tiles2{})) check(shape);
  for (const Sm90Shape shape : shapes_of(Sm90TilesSplit{})) check(shape);
}

INSTANTIATE_TEST_SUITE_P(SharedBytes, Sm90Plans, testing::Values(kHopperBytes, kFewerBytes));

int64_t waves_of(const Sm90Plan& plan) {
  const int sharers = plan.shares_b ? 2 : 1;
  return divide_up(int64_t{plan.num_tiles} * sharers, plan.num_blocks);
}

TEST(Sm90Plan, OfOneRowGivesTheSmsEqualShares) {
  const Sm90Plan o = plan_sm90({.m = 1, .n = 4096, .k = 4096});
  EXPECT_EQ(o.shape.cols, 32);
  EXPECT_EQ(waves_of(o), 1);
  const Sm90Plan qkv = plan_sm90({.m = 1, .n = 6144, .k = 4096});
  EXPECT_EQ(qkv.shape.cols, 48);
  EXPECT_EQ(waves_of(qkv), 1);
}

TEST(Sm90Plan, OfOneRowAndManyColumnsLeavesNoSmMoreThanATenthToWaitFor) {
  for (const int64_t n : {14336, 28672}) {
    const Sm90Plan plan = plan_sm90({.m = 1, .n = n, .k = 4096});
    const int64_t longest = waves_of(plan) * plan.shape.cols;
    EXPECT_LE(10 * longest * 132, 11 * n) << n << " by " << plan.shape.cols;
  }
}

TEST(Sm90Plan, OfFewRowsUsesOneWarpgroup) {
  for (const int64_t n : {64, 4096, 6144, 28672, 128256}) {
    for (int64_t m = 1; m <= 64; ++m) {
      EXPECT_EQ(plan_sm90({.m = m, .n = n, .k = 4096}).shape.warpgroups, 1) << m << " x " << n;
    }
  }
}

TEST(Sm90Plan, OfManyRowsCutsColumnsSoThatWavesAreFull) {
  const Sm90Plan plan = plan_sm90({.m = 1024, .n = 6144, .k = 4096});
  EXPECT_EQ(plan.shape, (Sm90Shape{2, 192, 1}));
  EXPECT_EQ(waves_of(plan), 2);
}

TEST(Sm90Plan, OfALargeProductSharesB) {
  const Sm90Plan plan = plan_sm90({.m = 4096, .n = 4096, .k = 4096, .stages_out = true});
  EXPECT_EQ(plan.shape, (Sm90Shape{2, 256, 1}));
  EXPECT_TRUE(plan.shares_b);
  EXPECT_GT(plan.layout.store_bytes, 0);
}

TEST(Sm90Plan, SplitsKWhereTilesAreShortOfWhatAnSmCanTakeIn) {
  const auto splits_of = [](int64_t m, int64_t n, int64_t k) {
    const std::optional<Sm90Plan> plan = plan_sm90_split({.m = m, .n = n, .k = k});
    return plan ? plan->shape.splits : 1;
  };
  EXPECT_EQ(splits_of(128, 4096, 4096), 2);
  EXPECT_EQ(splits_of(128, 6144, 4096), 2);
  EXPECT_EQ(splits_of(256, 4096, 14336), 2);
  EXPECT_EQ(splits_of(256, 6144, 4096), 1);   // more to fold than to win
  EXPECT_EQ(splits_of(512, 4096, 14336), 1);  // the same
  EXPECT_EQ(splits_of(128, 28672, 4096), 1);  // memory is the limit
  EXPECT_EQ(splits_of(4096, 4096, 4096), 1);  // the SMs are full
  EXPECT_EQ(splits_of(64, 4096, 4096), 1);
  EXPECT_EQ(splits_of(128, 4096, 128), 1);  // nothing to split
}

// So that the shapes that every row is tested with (bench/problems/gemm_shapes.cpp) reach every
// tile that splits k.
TEST(Sm90Plan, SplitsTheTestShapesByEveryTile) {
  std::vector<Sm90Shape> reached;
  for (const Sm90Problem& problem :
       {Sm90Problem{.m = 128, .n = 320, .k = 2048}, Sm90Problem{.m = 385, .n = 1160, .k = 2048},
        Sm90Problem{.m = 385, .n = 1744, .k = 3072, .is_gated = true}}) {
    const std::optional<Sm90Plan> plan = plan_sm90_split(problem);
    ASSERT_TRUE(plan) << problem.m << " x " << problem.n;
    reached.push_back(plan->shape);
  }
  EXPECT_TRUE(std::ranges::equal(reached, shapes_of(Sm90TilesSplit{})));
}

TEST(Sm90Plan, YieldsWhereCublasLtIsFaster) {
  EXPECT_FALSE(is_better_yielded({.m = 64, .n = 6144, .k = 4096}));
  EXPECT_FALSE(is_better_yielded({.m = 128, .n = 4096, .k = 4096}));
  EXPECT_TRUE(is_better_yielded({.m = 128, .n = 6144, .k = 4096}));
  EXPECT_TRUE(is_better_yielded({.m = 256, .n = 4096, .k = 4096}));
  EXPECT_TRUE(is_better_yielded({.m = 1024, .n = 6144, .k = 4096}));
  EXPECT_FALSE(is_better_yielded({.m = 256, .n = 28672, .k = 4096}));
  EXPECT_FALSE(is_better_yielded({.m = 4096, .n = 4096, .k = 4096}));
  EXPECT_FALSE(is_better_yielded({.m = 256, .n = 4096, .k = 4096, .batch = 2}));
  EXPECT_FALSE(is_better_yielded({.m = 512, .n = 14336, .k = 4096}));
  EXPECT_TRUE(is_better_yielded({.m = 4096, .n = 28672, .k = 4096}));
  EXPECT_FALSE(is_better_yielded({.m = 8192, .n = 8192, .k = 8192}));
  EXPECT_TRUE(is_better_yielded({.m = 512, .n = 128256, .k = 4096}));
  EXPECT_FALSE(is_better_yielded({.m = 4096, .n = 128256, .k = 4096}));
  EXPECT_FALSE(is_better_yielded({.m = 16, .n = 128256, .k = 4096}));
}

// Racecheck follows no arrival from another block of a cluster, so what runs under it must use
// none: problems of at most 1 MB in all.
TEST(Sm90Plan, OfASmallProblemUsesNoCluster) {
  for (int64_t m = 1; m <= 4096; m += m < 256 ? 1 : 64) {
    for (int64_t n = 64; n <= 8192; n += 64) {
      for (const int64_t k : {64, 128, 512, 1024}) {
        if (2 * (m * k + n * k + m * n) > 1 << 20) continue;
        EXPECT_FALSE(plan_sm90({.m = m, .n = n, .k = k}).shares_b) << m << " x " << n;
        EXPECT_FALSE(plan_sm90_split({.m = m, .n = n, .k = k})) << m << " x " << n;
      }
    }
  }
}

TEST(GemmSm90Plan, OfCodesIsOneThatIsCompiled) {
  for (const Sm90Operands operands : {Sm90Operands::fp8, Sm90Operands::int8,
                                      Sm90Operands::unsigned_int8, Sm90Operands::promoted}) {
    for (const int64_t m : {1, 16, 33, 64, 65, 128, 300, 1024, 4096}) {
      for (const int64_t n : {8, 64, 257, 4096, 6144, 28672, 128256}) {
        for (const int64_t k : {64, 192, 2048, 7168}) {
          const Sm90Problem problem{
              .m = m, .n = n, .k = k, .stages_out = true, .operands = operands};
          const Sm90Plan plan = plan_sm90(problem);
          EXPECT_TRUE(is_compiled(plan.shape, operands)) << "m " << m << " n " << n << " k " << k;
          EXPECT_EQ(layout_fault(problem, plan), "") << "m " << m << " n " << n << " k " << k;
        }
      }
    }
  }
}

// The layers of Llama 3 8B: no SM reads more than 4 % above its share of B.
TEST(GemmSm90Plan, GivesFewRowsOfCodesEqualShares) {
  for (const Sm90Operands operands : {Sm90Operands::fp8, Sm90Operands::int8}) {
    for (const int64_t n : {6144, 4096, 28672, 14336}) {
      const Sm90Plan plan = plan_sm90({.m = 1, .n = n, .k = 2048, .operands = operands});
      const int64_t waves = divide_up(plan.num_tiles, 132);
      EXPECT_LE(static_cast<double>(waves * plan.shape.cols * 132), 1.04 * static_cast<double>(n))
          << "n " << n << ", tiles of " << plan.shape.cols;
    }
  }
}

}  // namespace
}  // namespace tessera::kernels
