// Kernels that go wrong are stopped, with the place and the values.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include "tests/emulator/ptx_kernel.h"

namespace tessera::emulator {
namespace {

void expect_has(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(EmulatorFault, NamesTheKernelThePlaceAndTheAddress) {
  PtxKernel kernel(R"(
  mov.u32 %r0, %tid.x;
  setp.ne.s32 %p1, %r0, 40;
  @%p1 bra $L_end;
  mov.u64 %rd1, 64;
  st.global.u32 [%rd1+8], %r0;
$L_end:
)");
  const std::string text = fault_of(kernel, 64, FaultKind::illegal_address);
  expect_has(text, "kernel test_kernel, block 0,0,0, warp 1, at: st.global.u32 [%rd1+8], %r0");
  expect_has(text, "4 bytes at global address 0x48 are in no allocation");
}

TEST(EmulatorFault, AReadOneElementBehindAnAllocationIsCaught) {
  PtxKernel kernel("ld.global.u32 %r0, [%rd0+16];");
  expect_has(fault_of(kernel, 4, FaultKind::illegal_address), "in no allocation");
  EXPECT_EQ(fault_of(kernel, 5, FaultKind::illegal_address), "");
}

TEST(EmulatorFault, AMisalignedAddressIsCaught) {
  PtxKernel kernel("ld.global.u64 %rd1, [%rd0+4];");
  expect_has(fault_of(kernel, 32, FaultKind::misaligned_address), "for 8 bytes");
}

TEST(EmulatorFault, SharedMemoryEndsWithTheBlocks) {
  PtxKernel kernel(R"(
  .shared .align 4 .b8 tile[8];
  mov.u32 %r1, tile;
  ld.shared.u32 %r0, [%r1+8];
)");
  expect_has(fault_of(kernel, 1, FaultKind::illegal_address),
             "4 bytes at shared address 0x8, but the block has 8 bytes");
}

TEST(EmulatorFault, AnUnknownInstructionFailsByNameOnlyIfItIsExecuted) {
  const auto body = [](const char* condition) {
    return std::string("  setp.") + condition + R"(.s32 %p1, 1, 1;
  @%p1 bra $L_end;
  wibble.sync.b32 %r0, %r1;
$L_end:
)";
  };
  PtxKernel skipped(body("eq")), executed(body("ne"));
  EXPECT_EQ(fault_of(skipped, 1, FaultKind::illegal_instruction), "");
  const std::string text = fault_of(executed, 1, FaultKind::illegal_instruction);
  expect_has(text, "wibble.sync.b32 %r0, %r1: unknown instruction");
}

TEST(EmulatorFault, AStuckLaunchTellsWhereEveryWarpWaits) {
  PtxKernel kernel(R"(
  mov.u32 %r1, %tid.x;
  setp.lt.u32 %p1, %r1, 32;
  @%p1 bra $L_end;
  bar.sync 3, 96;
$L_end:
)");
  const std::string text = fault_of(kernel, 64, FaultKind::timeout);
  expect_has(text, "kernel test_kernel is stuck");
  expect_has(text, "block 0,0,0 warp 1: ");
  expect_has(text, "waits at barrier 3");
}

TEST(EmulatorFault, LanesThatNeverComeAreNamed) {
  PtxKernel kernel(R"(
  mov.u32 %r1, %laneid;
  setp.lt.u32 %p1, %r1, 16;
  @%p1 bra $L_other;
  shfl.sync.idx.b32 %r0, %r1, 0, 31, -1;
  bra $L_end;
$L_other:
  shfl.sync.idx.b32 %r2, %r1, 0, 31, -1;
$L_end:
)");
  expect_has(fault_of(kernel, 32, FaultKind::timeout), "lanes wait for lanes");
}

TEST(EmulatorFault, AnMBarrierRefusesMoreArrivalsThanItExpects) {
  PtxKernel kernel(R"(
  .shared .align 8 .b8 barrier[8];
  mov.u32 %r2, barrier;
  mbarrier.init.shared::cta.b64 [%r2], 2;
  mbarrier.arrive.shared::cta.b64 _, [%r2], 3;
)");
  expect_has(fault_of(kernel, 1, FaultKind::launch_failure),
             "3 arrivals at an mbarrier that waits for 2 of 2");
}

}  // namespace
}  // namespace tessera::emulator
