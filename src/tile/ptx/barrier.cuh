// Named barriers: some of a block's warps synchronise, or some arrive and others wait.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace tessera::tile::ptx {

// Barriers 0 to 15 exist; 0 is __syncthreads. Thread counts are multiples of 32 and include threads
// that arrive and threads that wait.

// PTX: bar.sync.
__device__ __forceinline__ void bar_sync(int barrier, int num_threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(num_threads) : "memory");
}

// PTX: bar.arrive. Does not wait.
__device__ __forceinline__ void bar_arrive(int barrier, int num_threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(num_threads) : "memory");
}

}  // namespace tessera::tile::ptx
