// In which order the Hopper prefill kernel walks its tiles.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <utility>

#include "kernels/attention/prefill/sm90/plan.h"

namespace tessera::kernels::prefill_sm90 {
namespace {

constexpr int kNumSms = 132;

PrefillOrder causal(int num_heads, int length, int64_t bytes_per_key) {
  return {.num_heads = num_heads,
          .m_tiles = length / 128,
          .num_blocks = kNumSms,
          .is_causal = true,
          .kv_bytes = length * bytes_per_key};
}

TEST(PrefillPlan, HeadsWithoutACausalMaskAreWalkedOneByOne) {
  PrefillOrder order = causal(512, 2048, 512);
  order.is_causal = false;
  EXPECT_EQ(choose_group(order), 1);
}

TEST(PrefillPlan, HeadsThatFitTheCacheTogetherAreOneGroup) {
  EXPECT_EQ(choose_group(causal(32, 2048, 128)), 32);
}

TEST(PrefillPlan, HeadsThatManyBlocksShareAreOneGroup) {
  EXPECT_EQ(choose_group(causal(16, 16384, 512)), 16);
}

TEST(PrefillPlan, OtherHeadsComeInGroupsThatFitTheCacheAndLoadBlocksEvenly) {
  for (const auto& [num_heads, length] :
       {std::pair{512, 512}, {256, 1024}, {128, 2048}, {64, 4096}}) {
    const PrefillOrder order = causal(num_heads, length, 512);
    const int group = choose_group(order);
    EXPECT_LT(group, num_heads) << length;
    EXPECT_LE(group * order.kv_bytes, kGroupBytes) << length;
    EXPECT_GT(evenness(order, group), 0.96) << length;
  }
}

TEST(PrefillPlan, AGroupIsAlwaysPossible) {
  for (int num_heads : {1, 2, 7, 131, 132, 133, 1000}) {
    for (int length : {128, 256, 1280, 8192, 65536}) {
      const int group = choose_group(causal(num_heads, length, 512));
      EXPECT_GE(group, 1);
      EXPECT_LE(group, num_heads);
    }
  }
}

TEST(PrefillPlan, EvennessIsOneWhereAllBlocksHaveTheSame) {
  const PrefillOrder order{
      .num_heads = 132, .m_tiles = 4, .num_blocks = kNumSms, .is_causal = true, .kv_bytes = 1};
  EXPECT_EQ(evenness(order, 132), 1.0);
}

}  // namespace
}  // namespace tessera::kernels::prefill_sm90
