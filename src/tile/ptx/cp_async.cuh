// cp.async: copies of 4, 8 or 16 bytes from global to shared memory, sm_80 up.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace tessera::tile::ptx {

// PTX: cp.async. Copies kBytes, the last kBytes - source_bytes of them as zeros; with source_bytes
// 0 the source is not read. 16 bytes bypass L1; 4 and 8 cannot.
template <int kBytes>
__device__ __forceinline__ void cp_async(uint32_t destination, const void* source,
                                         uint32_t source_bytes = kBytes) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
  const size_t global = __cvta_generic_to_global(source);
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(destination), "l"(global),
                 "r"(source_bytes)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(destination), "l"(global),
                 "n"(kBytes), "r"(source_bytes)
                 : "memory");
  }
}

// PTX: cp.async.commit_group.
__device__ __forceinline__ void cp_async_commit_group() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// PTX: cp.async.wait_group. Returns when at most kPending of this thread's groups are in flight.
template <int kPending>
__device__ __forceinline__ void cp_async_wait_group() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// PTX: cp.async.mbarrier.arrive.noinc. An arrival on `barrier` once this thread's copies so far
// have landed; the barrier's count must include it. Needs an mbarrier, sm_80 up.
__device__ __forceinline__ void cp_async_mbarrier_arrive(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
}

}  // namespace tessera::tile::ptx
