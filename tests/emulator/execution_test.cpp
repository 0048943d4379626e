// Lanes that part and meet again, barriers, and copies that have not happened yet.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include "tests/emulator/ptx_kernel.h"

namespace tessera::emulator {
namespace {

TEST(EmulatedWarp, LanesThatPartedMeetBeforeAnInstructionOfTheWarp) {
  // Odd lanes take a loop of as many turns as their number; then all add up what they counted.
  PtxKernel kernel(std::string(R"(
  mov.u32 %r1, %laneid;
  mov.u32 %r2, 0;
  and.b32 %r3, %r1, 1;
  setp.eq.s32 %p1, %r3, 0;
  @%p1 bra $L_join;
$L_loop:
  add.s32 %r2, %r2, 1;
  setp.lt.u32 %p2, %r2, %r1;
  @%p2 bra $L_loop;
$L_join:
  redux.sync.add.s32 %r0, %r2, -1;
)") + kLeave);
  for (const uint32_t sum : kernel.run(32)) EXPECT_EQ(sum, 256u);  // 1 + 3 + ... + 31
}

TEST(EmulatedWarp, ShufflesStayWithinTheirSegments) {
  PtxKernel kernel(std::string(R"(
  mov.u32 %r1, %laneid;
  shfl.sync.down.b32 %r0|%p1, %r1, 1, 0x181f, -1;
  @!%p1 add.s32 %r0, %r0, 100;
)") + kLeave);
  const std::vector<uint32_t> out = kernel.run(32);
  for (uint32_t lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(out[lane], lane % 8 == 7 ? lane + 100 : lane + 1) << lane;
  }
}

TEST(EmulatedBlock, ABarrierMakesSharedMemoryOfOtherWarpsVisible) {
  const auto body = [](const char* barrier) {
    return std::string(R"(
  .shared .align 4 .b8 tile[512];
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, tile;
  shl.b32 %r3, %r1, 2;
  add.s32 %r4, %r2, %r3;
  st.shared.u32 [%r4], %r1;
)") + barrier +
           R"(
  xor.b32 %r5, %r3, 256;
  add.s32 %r5, %r2, %r5;
  ld.shared.u32 %r0, [%r5];
)" + kLeave;
  };
  PtxKernel right(body("bar.sync 0;")), wrong(body(""));
  int num_noticed = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const std::vector<uint32_t> out = right.run(128, seed);
    for (uint32_t i = 0; i < 128; ++i) EXPECT_EQ(out[i], i ^ 64);
    num_noticed += wrong.run(128, seed) != out ? 1 : 0;
  }
  EXPECT_GT(num_noticed, 0);
}

// Copies 16 bytes, then reads them after `wait`.
std::string copying(const char* wait) {
  return std::string(R"(
  .shared .align 16 .b8 tile[16];
  mov.u32 %r1, tile;
  mov.u32 %r2, 7;
  st.global.u32 [%rd0], %r2;
  cp.async.ca.shared.global [%r1], [%rd0], 4;
  cp.async.commit_group;
)") + wait +
         R"(
  ld.shared.u32 %r0, [%r1];
)" + kLeave;
}

TEST(EmulatedCopy, ReadsOldBytesWhereAWaitIsMissing) {
  PtxKernel right(copying("cp.async.wait_group 0;")), early(copying("cp.async.wait_group 1;"));
  EXPECT_EQ(right.run(1), std::vector<uint32_t>{7});
  EXPECT_EQ(early.run(1), std::vector<uint32_t>{0x7fc0dead});
}

// One thread copies 16 bytes by the bulk unit and waits for `parity` of the mbarrier, or not at
// all.
std::string copying_in_bulk(const char* wait) {
  return std::string(R"(
  .shared .align 16 .b8 tile[16];
  .shared .align 8 .b8 barrier[8];
  mov.u32 %r1, tile;
  mov.u32 %r2, barrier;
  mov.u32 %r3, 7;
  st.global.v4.u32 [%rd0], {%r3, %r3, %r3, %r3};
  mbarrier.init.shared::cta.b64 [%r2], 1;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 16;
  mov.u32 %r5, 16;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd0], %r5, [%r2];
)") + wait +
         R"(
  ld.shared.u32 %r0, [%r1];
)" + kLeave;
}

TEST(EmulatedMBarrier, APhaseEndsWhenTheExpectedBytesHaveCome) {
  PtxKernel right(copying_in_bulk(R"(
$L_wait:
  mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r2], 0;
  @!%p1 bra $L_wait;
)"));
  // Parity 1 is that of the phase before the first, which counts as over.
  PtxKernel wrong(copying_in_bulk(R"(
$L_wait:
  mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r2], 1;
  @!%p1 bra $L_wait;
)"));
  int num_noticed = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    EXPECT_EQ(right.run(1, seed).front(), 7u);
    num_noticed += wrong.run(1, seed).front() != 7 ? 1 : 0;
  }
  EXPECT_GT(num_noticed, 0);
}

}  // namespace
}  // namespace tessera::emulator
