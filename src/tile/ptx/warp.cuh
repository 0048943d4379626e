// What a warp or warpgroup of sm_90a does as a whole: elect a leader, change its register count.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace tessera::tile::ptx {

// PTX: elect.sync. True in exactly one lane of a fully active warp. Cheaper than comparing lane
// numbers: the compiler knows that one thread runs what follows.
__device__ __forceinline__ bool elect_sync() {
  uint32_t is_elected;
  asm volatile(
      "{\n.reg .pred elected;\n"
      "elect.sync _|elected, 0xffffffff;\n"
      "selp.u32 %0, 1, 0, elected;\n}"
      : "=r"(is_elected)
      :
      : "memory");
  return is_elected != 0;
}

// PTX: setmaxnreg.inc. Every warp of a warpgroup executes it; it waits until the registers are
// free. The kernel needs __launch_bounds__(threads, 1), and each role one branch of one if/else.
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_inc() {
  static_assert(kRegisters >= 24 && kRegisters <= 256 && kRegisters % 8 == 0);
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// PTX: setmaxnreg.dec. Gives registers back for another warpgroup's inc.
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_dec() {
  static_assert(kRegisters >= 24 && kRegisters <= 256 && kRegisters % 8 == 0);
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace tessera::tile::ptx
