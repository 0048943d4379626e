// How the Hopper decode kernel cuts keys, and how many blocks it gives a sequence.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "kernels/attention/decode/sm90/cut.h"
#include "kernels/attention/decode/sm90/plan.h"

namespace tessera::kernels::decode_sm90 {
namespace {

// What a run of leaves reads is what its leaves read one after the other, and all leaves together
// read every step once. Leaves are alike: none has more than a step more than it must.
TEST(DecodeLeaves, EveryStepIsInOneLeaf) {
  for (const int num_steps : {0, 1, 2, 7, 15, 16, 17, 63, 64, 100, 255, 256, 1023, 1024, 4099}) {
    for (const int bits : {4, 8, 16}) {
      for (const int log2_turns : {0, 2, 3}) {
        const int log2 = log2_leaves(num_steps, bits);
        const int log2_run = std::clamp(log2 - log2_turns, 0, 5);
        std::vector<int> times(static_cast<size_t>(num_steps), 0);
        for (int first = 0; first < 1 << log2; first += std::max(1 << log2_run, 1)) {
          const LeafRange run{first, 1 << log2_run};
          const StepRange all = steps_of(run, log2, num_steps, log2_turns);
          int step = all.begin;
          for (int leaf = first; leaf < first + run.count; ++leaf) {
            const StepRange it = steps_of({leaf, 1}, log2, num_steps, log2_turns);
            EXPECT_EQ(it.log2_stride, all.log2_stride);
            EXPECT_TRUE(it.begin == step || it.begin >= num_steps);
            int count = 0;
            for (; step < it.end; step += 1 << it.log2_stride) {
              ++times[static_cast<size_t>(step)];
              ++count;
            }
            EXPECT_LE(count, (num_steps >> log2) + 2);
          }
          EXPECT_GE(step, all.end);
        }
        EXPECT_EQ(times, std::vector<int>(static_cast<size_t>(num_steps), 1))
            << num_steps << " " << bits << " " << log2_turns;
      }
    }
  }
}

TEST(DecodeLeaves, TurnsInterleave) {
  // 16 leaves of 64 steps: two stretches, which eight leaves read by turns.
  const StepRange first = steps_of({0, 1}, 4, 64, 3), second = steps_of({1, 1}, 4, 64, 3);
  EXPECT_EQ(first.begin, 0);
  EXPECT_EQ(first.end, 32);
  EXPECT_EQ(first.log2_stride, 3);
  EXPECT_EQ(second.begin, 32);
  EXPECT_EQ(steps_of({2, 1}, 4, 64, 3).begin, 1);
  EXPECT_EQ(steps_of({15, 1}, 4, 64, 3).begin, 39);
  // Of 8 leaves a small block's four warps have two each, of the same turn.
  EXPECT_EQ(steps_of({2, 2}, 3, 40, 3).log2_stride, 2);
}

TEST(DecodeLeaves, TheLongestSequenceDoesNotOverflow) {
  const int num_steps = (1 << 28) / kStepKeys;
  const int log2 = log2_leaves(num_steps, 8);
  EXPECT_EQ(1 << log2, kMostLeaves);
  for (const int log2_turns : {0, 3}) {
    EXPECT_EQ(steps_of({kMostLeaves - 1, 1}, log2, num_steps, log2_turns).end, num_steps);
  }
}

// Leaf i of a tree must be met at the same place whatever the number of warps: as the first of an
// aligned run of slots, alone or with its neighbours.
TEST(DecodeLeaves, WarpsShareATreeInAlignedRuns) {
  for (int log2_tree = 3; log2_tree <= 8; ++log2_tree) {
    for (int log2_slots = 0; log2_slots <= 8; ++log2_slots) {
      int next = 0;
      for (int slot = 0; slot < 1 << log2_slots; ++slot) {
        const LeafRange range = leaves_of(slot, log2_slots, log2_tree);
        if (range.count == 0) {
          EXPECT_GT(log2_slots, log2_tree);
          continue;
        }
        EXPECT_EQ(range.first, next);
        EXPECT_EQ(range.first << log2_slots, slot << log2_tree);
        next += range.count;
      }
      EXPECT_EQ(next, 1 << log2_tree);
    }
  }
}

// Four queries a head of 64 or 128, which see all keys.
DecodeShape four_queries(int64_t num_units, int64_t longest, int bits) {
  return {.num_units = num_units,
          .longest = longest,
          .num_queries = 4,
          .row_bytes = 128 * bits / 8,
          .num_sms = 132,
          .bits = bits,
          .log2_warps = 3,
          .log2_waiting = bits == 16 ? 5 : 3,
          .is_narrow = bits < 16,
          .has_clusters = true};
}

DecodePlan plan(int64_t num_units, int64_t longest, int bits = 16) {
  return plan_decode(four_queries(num_units, longest, bits));
}

// Eight queries a head.
DecodePlan plan_of_eight(int64_t num_units, int64_t longest, int bits = 16) {
  DecodeShape shape = four_queries(num_units, longest, bits);
  shape.num_queries = 8;
  shape.log2_waiting = bits == 16 ? 3 : 0;
  shape.is_narrow = false;
  return plan_decode(shape);
}

// Queries of one token over keys in 16 bits; `num_heads` counts heads of keys of all sequences.
DecodePlan plan_of(int64_t num_heads, int64_t longest, int num_queries, int head_dim) {
  DecodeShape shape = four_queries(num_heads * ((num_queries + 7) / 8), longest, 16);
  shape.num_queries = num_queries;
  shape.row_bytes = 2 * head_dim;
  shape.log2_waiting = num_queries <= 4 ? 5 : 3;
  return plan_decode(shape);
}

// Heads of 256, which have blocks of four warps, or 16 queries, which do not see all keys.
DecodePlan plan_without_room(int64_t num_units, int64_t longest, int log2_warps) {
  DecodeShape shape = four_queries(num_units, longest, 16);
  shape.log2_warps = log2_warps;
  shape.log2_waiting = 0;
  shape.has_clusters = false;
  return plan_decode(shape);
}

TEST(DecodePlan, FewHeadsOfShortSequencesFoldOverClusters) {
  const DecodePlan few{DecodeMerge::few_units, kFewUnitsLog2Parts};
  EXPECT_EQ(plan(8, 1024), few);
  EXPECT_EQ(plan(8, 4096), few);
  EXPECT_EQ(plan(16, 8192, 4), few);
  // A handful of steps is not worth eight blocks.
  EXPECT_EQ(plan(8, 1).merge, DecodeMerge::small);
  // Sixteen clusters of eight do not fit side by side, which bytes feel and codes do not.
  EXPECT_EQ(plan(16, 4096), (DecodePlan{DecodeMerge::parts, 2}));
}

TEST(DecodePlan, LongSequencesOfFewHeadsFillTheGpu) {
  EXPECT_EQ(plan(8, 32768), (DecodePlan{DecodeMerge::parts, 4}));
  EXPECT_EQ(plan(32, 8192), (DecodePlan{DecodeMerge::parts, 2}));
  EXPECT_EQ(plan(64, 4096), (DecodePlan{DecodeMerge::pair, 1}));
  EXPECT_EQ(plan(32, 4096, 4), (DecodePlan{DecodeMerge::parts, 2}));
  EXPECT_EQ(plan(64, 4096, 4), (DecodePlan{DecodeMerge::pair, 1}));
  EXPECT_EQ(plan(8, 131072, 8), (DecodePlan{DecodeMerge::parts, kMostLog2Parts}));
  EXPECT_EQ(plan(8, int64_t{1} << 28, 8), (DecodePlan{DecodeMerge::parts, kMostLog2Parts}));
}

TEST(DecodePlan, ShortSequencesTakeOneBlockEachAndVeryManyASmallOne) {
  EXPECT_EQ(plan(128, 1024), (DecodePlan{DecodeMerge::parts, 0}));
  EXPECT_EQ(plan(256, 1024, 4), (DecodePlan{DecodeMerge::parts, 0}));
  EXPECT_EQ(plan(1024, 1100), (DecodePlan{DecodeMerge::small, 0}));
  EXPECT_EQ(plan_of_eight(1024, 1100), (DecodePlan{DecodeMerge::small, 0}));
  EXPECT_EQ(plan(280, 304, 4), (DecodePlan{DecodeMerge::small, 0}));
  EXPECT_EQ(plan(1024, 1024, 8), (DecodePlan{DecodeMerge::small, 0}));
  EXPECT_EQ(plan_of_eight(512, 1024, 4), (DecodePlan{DecodeMerge::parts, 0}));
}

int log2_leaves_of(int64_t longest, int bits) {
  return log2_leaves(static_cast<int>((longest + kStepKeys - 1) / kStepKeys), bits);
}

int log2_warps_of(const DecodePlan& plan) {
  const bool is_large = plan.merge == DecodeMerge::parts || plan.merge == DecodeMerge::pair;
  return plan.log2_parts + (is_large ? 3 : kLog2SmallWarps);
}

// A block whose warps have no leaf would still take a place on an SM. More leaves than have a place
// to wait would wait in memory.
TEST(DecodePlan, WarpsHaveLeavesButNoMoreThanCanWait) {
  for (const int64_t num_units : {17, 40, 132, 264, 1000}) {
    for (int64_t longest = 1; longest < 200000; longest += 1000) {
      for (const int bits : {4, 8, 16}) {
        const DecodePlan four = plan(num_units, longest, bits);
        const DecodePlan eight = plan_of_eight(num_units, longest, bits);
        const int leaves = log2_leaves_of(longest, bits);
        EXPECT_LE(log2_warps_of(four), leaves) << num_units << " " << longest << " " << bits;
        EXPECT_LE(log2_warps_of(eight), leaves) << num_units << " " << longest << " " << bits;
        EXPECT_GE(log2_warps_of(four) + (bits == 16 ? 5 : 3), leaves)
            << num_units << " " << longest << " " << bits;
        // Eight queries of codes have no place; where they are short, parts would cost more.
        const int room = bits == 16 ? 3 : longest < 4096 ? 1 : 0;
        EXPECT_GE(log2_warps_of(eight) + room, leaves)
            << num_units << " " << longest << " " << bits;
      }
    }
  }
}

TEST(DecodePlan, SequencesTakeOneBlockEachOrTwoWhereStatesCanWait) {
  EXPECT_EQ(plan(256, 8192), (DecodePlan{DecodeMerge::parts, 0}));
  EXPECT_EQ(plan(64, 8192), (DecodePlan{DecodeMerge::pair, 1}));
  EXPECT_EQ(plan(512, 8192), (DecodePlan{DecodeMerge::pair, 1}));
  EXPECT_EQ(plan(1024, 8192, 8), (DecodePlan{DecodeMerge::parts, 0}));
  EXPECT_EQ(plan(1024, 32768, 8), (DecodePlan{DecodeMerge::pair, 1}));
}

TEST(DecodePlan, LongSequencesTakeSmallBlocksThatHaveAnSmEach) {
  EXPECT_EQ(plan(128, 4096), (DecodePlan{DecodeMerge::small, 0}));
  EXPECT_EQ(plan(128, 32768), (DecodePlan{DecodeMerge::small, 0}));
  EXPECT_EQ(plan(1024, 32768), (DecodePlan{DecodeMerge::small_alone, 0}));
  EXPECT_EQ(plan(32, 131072), (DecodePlan{DecodeMerge::small, 2}));
  EXPECT_EQ(plan_of_eight(32, 131072), (DecodePlan{DecodeMerge::small, 2}));
  EXPECT_EQ(plan_of_eight(128, 131072), (DecodePlan{DecodeMerge::pair, 1}));
}

// Between the powers of two the model decides. 72 or 80 blocks in one wave
// reach a lower rate than 40 do, or than several waves.
TEST(DecodePlan, BlocksShareTheGpuEvenly) {
  EXPECT_EQ(plan(72, 32768), (DecodePlan{DecodeMerge::parts, 3}));
  EXPECT_EQ(plan(80, 4289), (DecodePlan{DecodeMerge::parts, 2}));
  EXPECT_EQ(plan(39, 6334), (DecodePlan{DecodeMerge::parts, 0}));
  EXPECT_EQ(plan(40, 3196), (DecodePlan{DecodeMerge::parts, 0}));
  for (const int64_t num_units : {1, 39, 140, 700}) {
    for (const int64_t longest : {100, 3000, 60000}) {
      const DecodeShape shape = four_queries(num_units, longest, 16);
      const float us = cost_of(shape, plan_decode(shape));
      EXPECT_LE(us, 1.05f * cost_of(shape, plan_by_rules(shape)));
      EXPECT_LE(us, 1.05f * cost_of(shape, {DecodeMerge::parts, 0}));
    }
  }
}

// More than eight queries a head are sixteen in a block, or groups of eight that read keys again.
TEST(DecodePlan, ManyQueriesTakeWideBlocks) {
  EXPECT_EQ(plan_of(40, 3046, 12, 128).num_queries, 16);
  EXPECT_EQ(plan_of(2, 1533, 19, 128), (DecodePlan{DecodeMerge::few_units, 3, 8}));
  EXPECT_EQ(plan_of(64, 300, 8, 128).num_queries, 8);
}

// What shapes of tests rely on (decode_plan_shapes).
TEST(DecodePlan, TestShapesMeetEveryNumberOfLeaves) {
  const auto leaves = [](const DecodePlan& plan, int64_t longest, int bits) {
    return 1 << (log2_leaves_of(longest, bits) - log2_warps_of(plan));
  };
  EXPECT_EQ(leaves(plan_of(8 * 27, 8200, 4, 64), 8200, 16), 8);
  EXPECT_EQ(leaves(plan_of(8 * 15, 8192, 5, 128), 8192, 16), 8);
  EXPECT_EQ(leaves(plan_of(8 * 11, 33000, 5, 64), 33000, 16), 8);
  EXPECT_EQ(leaves(plan_of(8 * 14, 33000, 1, 64), 33000, 16), 32);
  EXPECT_EQ(plan_of(4 * 35, 300, 4, 128).merge, DecodeMerge::small);
  EXPECT_EQ(plan_of(4 * 35, 1100, 5, 64).merge, DecodeMerge::small);
  EXPECT_EQ(plan_of(8 * 16, 8200, 12, 128), (DecodePlan{DecodeMerge::parts, 0, 16}));
  EXPECT_EQ(plan_of(8 * 12, 2100, 12, 64), (DecodePlan{DecodeMerge::small, 0, 16}));
  EXPECT_EQ(plan_of(8 * 10, 1100, 24, 128), (DecodePlan{DecodeMerge::pair, 1, 16}));
  EXPECT_EQ(plan_of(8 * 20, 300, 12, 64), (DecodePlan{DecodeMerge::small, 0, 16}));
  EXPECT_EQ(plan_of(8 * 8, 300, 24, 64), (DecodePlan{DecodeMerge::small, 0, 8}));
  EXPECT_EQ(plan(64, 33000), (DecodePlan{DecodeMerge::small, 1}));
  EXPECT_EQ(leaves(plan(64, 33000), 33000, 16), 16);
  EXPECT_EQ(leaves(plan(72, 2112, 8), 2112, 8), 2);
  EXPECT_EQ(leaves(plan(280, 304, 4), 304, 4), 2);
  for (const int bits : {4, 8}) {
    EXPECT_EQ(leaves(plan(72, 4208, bits), 4208, bits), 4);
    EXPECT_EQ(leaves(plan(72, 16400, bits), 16400, bits), 8);
  }
  EXPECT_EQ(plan_without_room(72, 2100, 2), (DecodePlan{DecodeMerge::parts, 3}));
}

TEST(DecodePlan, WithoutRoomForStatesLongSequencesAreCutHoweverMany) {
  EXPECT_EQ(plan_without_room(1024, 8192, 3), (DecodePlan{DecodeMerge::parts, 3}));
  EXPECT_EQ(plan_without_room(1024, 32768, 3), (DecodePlan{DecodeMerge::parts, 4}));
  EXPECT_EQ(plan_without_room(1024, 32768, 2), (DecodePlan{DecodeMerge::parts, 4}));
  EXPECT_EQ(plan_without_room(512, 1024, 2), (DecodePlan{DecodeMerge::parts, 2}));
}

TEST(DecodePlan, WithoutClustersEverythingGoesThroughMemory) {
  EXPECT_EQ(plan_without_room(8, 1024, 3), (DecodePlan{DecodeMerge::parts, 1}));
  EXPECT_EQ(plan_without_room(0, 0, 3).merge, DecodeMerge::parts);
}

TEST(DecodeEarly, CallsThatReadMuchAskFor128KbAnSm) {
  constexpr int64_t kMegabyte = 1 << 20, kStep = 64 << 10;
  EXPECT_EQ(plan_early(32 * kMegabyte - 1, 128, kStep, 132, 2), DecodeEarly{});
  // A block an SM: as many as have a place, and two steps, of which one would be 64 KB.
  EXPECT_EQ(plan_early(32 * kMegabyte, 128, kStep, 132, 2), (DecodeEarly{264, 2}));
  EXPECT_EQ(plan_early(64 * kMegabyte, 133, kStep, 132, 2), (DecodeEarly{264, 1}));
  EXPECT_EQ(plan_early(64 * kMegabyte, 1000, kStep, 132, 1), (DecodeEarly{132, 2}));
  EXPECT_EQ(plan_early(64 * kMegabyte, 1000, 4 * kStep, 132, 1), (DecodeEarly{132, 1}));
}

// Blocks walk over their segments: together they meet every step of every head once, in order, and
// each head knows the blocks that share it.
TEST(DecodeStream, EveryStepHasOneBlock) {
  const std::vector<std::vector<int>> cases = {{1},
                                               {100},
                                               {40, 0, 70},
                                               {0},
                                               {0, 0, 5000},
                                               {4096, 4096},
                                               {131072, 1, 33, 0, 700, 64},
                                               std::vector<int>(1024, 40)};
  for (const std::vector<int>& lengths : cases) {
    for (const int num_blocks : {1, 7, 132, 264}) {
      constexpr int kHeads = 3;
      const auto count = static_cast<int>(lengths.size());
      std::vector<int> sums{0};
      for (const int length : lengths) sums.push_back(sums.back() + streamed_steps(length));
      const StreamCut cut(int64_t{sums.back()} * kHeads, num_blocks);
      int64_t next = 0;
      for (int block = 0; block < num_blocks; ++block) {
        const int64_t end = cut.begin(block + 1);
        ASSERT_EQ(cut.begin(block), next);
        while (next < end) {
          const StreamSegment part = segment_at(sums.data(), count, kHeads, next, end);
          const int steps = streamed_steps(lengths[static_cast<size_t>(part.sequence)]);
          ASSERT_EQ(part.num_steps, steps);
          ASSERT_LT(part.begin, part.end);
          ASSERT_LE(part.end, steps);
          ASSERT_EQ(part.first, int64_t{sums[static_cast<size_t>(part.sequence)]} * kHeads +
                                    int64_t{part.kv_head} * steps);
          ASSERT_EQ(part.first + part.begin, next);
          ASSERT_EQ(cut.block_of(next), block);
          // Whoever merges a head waits for all blocks between its first and its last.
          for (int b = cut.block_of(part.first); b <= cut.block_of(part.first + steps - 1); ++b) {
            ASSERT_LT(cut.begin(b), cut.begin(b + 1));
          }
          ASSERT_EQ(part.is_whole(), cut.block_of(part.first) == block &&
                                         cut.block_of(part.first + steps - 1) == block);
          next += part.end - part.begin;
        }
      }
      EXPECT_EQ(next, cut.num_steps);
    }
  }
}

}  // namespace
}  // namespace tessera::kernels::decode_sm90
