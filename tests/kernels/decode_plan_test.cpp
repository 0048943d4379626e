// How the Hopper decode kernel cuts keys, and how many blocks it gives a sequence.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <iterator>
#include <vector>

#include "kernels/attention/decode_sm90/plan.h"
#include "kernels/attention/decode_sm90/stream_plan.h"

namespace tessera::kernels {
namespace {

TEST(DecodeLeaves, EveryStepIsInOneLeafInOrder) {
  const int counts[] = {0, 1, 2, 15, 16, 17, 63, 64, 100, 255, 256, 1023, 1024, 5000, 4096};
  for (int i = 0; i < 3 * static_cast<int>(std::size(counts)); ++i) {
    const int num_steps = counts[i / 3];
    const int log2 = log2_leaves(num_steps, 4 << i % 3);
    EXPECT_EQ(leaf_begin(0, log2, num_steps), 0);
    for (int leaf = 0; leaf < 1 << log2; ++leaf) {
      EXPECT_LE(leaf_begin(leaf, log2, num_steps), leaf_begin(leaf + 1, log2, num_steps));
    }
    EXPECT_EQ(leaf_begin(1 << log2, log2, num_steps), num_steps) << num_steps;
  }
}

TEST(DecodeLeaves, TheLongestSequenceDoesNotOverflow) {
  const int num_steps = (1 << 28) / kStepKeys;
  EXPECT_EQ(leaf_begin(kMostLeaves, log2_leaves(num_steps, 8), num_steps), num_steps);
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

DecodePlan plan(int64_t num_units, int64_t longest, int bits = 16) {
  return plan_decode({num_units, longest, 132, bits, bits < 16, true, bits == 16});
}

TEST(DecodePlan, FewHeadsOfShortSequencesFoldOverClusters) {
  const DecodePlan few{DecodeMerge::few_units, kFewUnitsLog2Parts};
  EXPECT_EQ(plan(8, 1), few);
  EXPECT_EQ(plan(8, 1024), few);
  EXPECT_EQ(plan(8, 8192), few);
}

TEST(DecodePlan, LongSequencesOfFewHeadsFillTheGpu) {
  EXPECT_EQ(plan(8, 32768), (DecodePlan{DecodeMerge::parts, 4}));
  EXPECT_EQ(plan(32, 8192), (DecodePlan{DecodeMerge::parts, 2}));
  EXPECT_EQ(plan(64, 4096), (DecodePlan{DecodeMerge::pair, 1}));
  EXPECT_EQ(plan(32, 4096, 4), (DecodePlan{DecodeMerge::parts, 2}));
  EXPECT_EQ(plan(64, 4096, 4), (DecodePlan{DecodeMerge::pair, 1}));
}

TEST(DecodePlan, ManyShortSequencesTakeOneBlockEach) {
  EXPECT_EQ(plan(128, 1024), (DecodePlan{DecodeMerge::parts, 0}));
  EXPECT_EQ(plan(1024, 1024), (DecodePlan{DecodeMerge::parts, 0}));
  EXPECT_EQ(plan(256, 1024, 4), (DecodePlan{DecodeMerge::parts, 0}));
}

TEST(DecodePlan, VeryManyShortSequencesOfCodesTakeSmallBlocks) {
  EXPECT_EQ(plan(512, 1024, 4), (DecodePlan{DecodeMerge::many_units, 0}));
  EXPECT_EQ(plan(1024, 1024, 8), (DecodePlan{DecodeMerge::many_units, 0}));
  EXPECT_EQ(plan_decode({512, 1024, 132, 4, false, true, false}),
            (DecodePlan{DecodeMerge::parts, 0}));
}

// A block whose warps have no leaf would still take a place on an SM.
TEST(DecodePlan, WarpsHaveALeafOrTwo) {
  EXPECT_EQ(plan(64, 1024, 4), (DecodePlan{DecodeMerge::parts, 0}));
  // What shapes of tests rely on: 16 leaves for 8 warps.
  EXPECT_EQ(plan(72, 2100, 8), (DecodePlan{DecodeMerge::parts, 0}));
  EXPECT_EQ(log2_leaves(66, 8), 4);
  for (const int64_t num_units : {17, 40, 132, 264, 1000}) {
    for (int64_t longest = 1; longest < 200000; longest += 1000) {
      for (const int bits : {4, 8, 16}) {
        const DecodePlan it = plan(num_units, longest, bits);
        const int warps = it.log2_parts + (it.merge == DecodeMerge::many_units ? 2 : 3);
        const auto num_steps = static_cast<int>((longest + kStepKeys - 1) / kStepKeys);
        const int leaves = log2_leaves(num_steps, bits);
        EXPECT_LE(warps, leaves) << num_units << " " << longest << " " << bits;
        if (bits == 16) continue;
        EXPECT_GE(warps + 1, leaves) << num_units << " " << longest << " " << bits;
      }
    }
  }
}

TEST(DecodePlan, ManyLongSequencesTakeOneBlockEachOrTwo) {
  // What shapes of tests rely on: 8 and 16 leaves for each of 8 warps.
  for (const int64_t num_units : {72, 136}) {
    EXPECT_EQ(plan(num_units, 8192), (DecodePlan{DecodeMerge::parts, 0}));
    EXPECT_EQ(plan(num_units, 33000), (DecodePlan{DecodeMerge::parts, 0}));
  }
  EXPECT_EQ(log2_leaves(8192 / kStepKeys, 16), 6);
  EXPECT_EQ(log2_leaves(33000 / kStepKeys, 16), 7);
  EXPECT_EQ(plan(128, 4096), (DecodePlan{DecodeMerge::parts, 0}));
  EXPECT_EQ(plan(128, 131072), (DecodePlan{DecodeMerge::parts, 0}));
  EXPECT_EQ(plan(256, 8192), (DecodePlan{DecodeMerge::parts, 0}));
  EXPECT_EQ(plan(64, 8192), (DecodePlan{DecodeMerge::pair, 1}));
  EXPECT_EQ(plan(512, 8192), (DecodePlan{DecodeMerge::pair, 1}));
  EXPECT_EQ(plan(1024, 32768), (DecodePlan{DecodeMerge::pair, 1}));
}

TEST(DecodePlan, WithoutRoomForStatesLongSequencesAreCutHoweverMany) {
  EXPECT_EQ(plan_decode({1024, 8192, 132, 16, false, true, false}),
            (DecodePlan{DecodeMerge::parts, 2}));
  EXPECT_EQ(plan_decode({1024, 32768, 132, 16, false, true, false}),
            (DecodePlan{DecodeMerge::parts, 3}));
  EXPECT_EQ(plan(1024, 8192, 8), (DecodePlan{DecodeMerge::pair, 1}));
  EXPECT_EQ(plan(1024, 32768, 8), (DecodePlan{DecodeMerge::parts, 3}));
  EXPECT_EQ(plan(8, int64_t{1} << 28), (DecodePlan{DecodeMerge::parts, 4}));
  EXPECT_EQ(plan(8, 131072, 8), (DecodePlan{DecodeMerge::parts, kMostLog2Parts}));
}

TEST(DecodePlan, WithoutClustersEverythingGoesThroughMemory) {
  EXPECT_EQ(plan_decode({8, 1024, 132, 16, false, false, false}),
            (DecodePlan{DecodeMerge::parts, 1}));
  EXPECT_EQ(plan_decode({0, 0, 132, 16, false, false, false}).merge, DecodeMerge::parts);
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
}  // namespace tessera::kernels
