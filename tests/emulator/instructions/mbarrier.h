// An mbarrier: the object in shared memory by which asynchronous copies say that they are done.
//
// A phase ends when all expected arrivals have come and all expected bytes as well. Then the parity
// flips, and the counts start again. A wait asks for the parity of the phase it waits for, so it
// cannot tell a phase from the one two later: waiting one phase too late blocks for ever, and too
// early returns at once.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>

#include "tests/emulator/kernel.h"
#include "tests/emulator/warp.h"

namespace tessera::emulator {

class MBarrier {
 public:
  static constexpr int kMaxCount = (1 << 20) - 1;

  MBarrier(char* at, Launch& launch) : at_(at), launch_(&launch) {}

  void init(int count);
  void invalidate();
  int parity() const;
  int expected() const;
  int pending() const;  // arrivals still to come
  // Each may end the phase.
  void arrive(int count, int64_t expected_bytes);  // at most pending()
  void expect_bytes(int64_t bytes);
  void complete_bytes(size_t bytes);
  void expect_another();  // one more arrival in this phase

 private:
  // 64 bits, as on the device, though not with its layout, which is not documented.
  struct State {
    int parity, pending, expected;
    int64_t bytes;  // still to come; below 0: came before they were expected
  };
  State load() const;
  void store(State state);

  char* at_;
  Launch* launch_;
};

// The mbarrier at the shared address in a register.
MBarrier mbarrier_at(Warp& warp, const Instruction& instruction, Slot address, int lane);
MBarrier mbarrier_at(Warp& warp, const Instruction& instruction, uint32_t address);

// An arrival that the barrier must expect.
void arrive(Warp& warp, const Instruction& instruction, MBarrier barrier, int count,
            int64_t expected_bytes);

}  // namespace tessera::emulator
