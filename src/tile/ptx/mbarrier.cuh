// mbarrier: arrival counts, transaction bytes and phases in shared memory, and the proxy fences.
// SPDX-License-Identifier: MIT
//
// A barrier is named by its shared-memory address (8 bytes, aligned to 8). A wait names the parity
// of the phase it waits for: a fresh barrier is in phase 0, so waiting for parity 1 passes at once.
#pragma once

#include <cstdint>

#include "tile/ptx/address.cuh"

namespace tessera::tile::ptx {

// PTX: mbarrier.init.
__device__ __forceinline__ void mbarrier_init(uint32_t barrier, uint32_t num_arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(num_arrivals)
               : "memory");
}

// PTX: mbarrier.inval. Needed before the memory serves another purpose.
__device__ __forceinline__ void mbarrier_inval(uint32_t barrier) {
  asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

// PTX: mbarrier.arrive (release, scope cta).
__device__ __forceinline__ void mbarrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// PTX: mbarrier.arrive.expect_tx. One arrival, and the phase also waits for `bytes` to land.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

// PTX: mbarrier.expect_tx. No arrival: the phase waits for `bytes` more.
__device__ __forceinline__ void mbarrier_expect_tx(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

// PTX: mapa. The address, in the cluster's window, of the same place in the block of rank `rank`.
__device__ __forceinline__ uint32_t mapa(uint32_t address, uint32_t rank) {
  uint32_t peer;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(peer) : "r"(address), "r"(rank));
  return peer;
}

// PTX: mbarrier.arrive on a barrier of a block of the cluster; the address comes from mapa.
__device__ __forceinline__ void mbarrier_arrive_cluster(uint32_t peer_barrier) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(peer_barrier)
               : "memory");
}

// PTX: mbarrier.arrive.relaxed on a barrier of a block of the cluster. Orders no ordinary accesses:
// for stages that only TMA and the tensor cores access. The releasing form costs a device-wide
// fence, hundreds of cycles.
__device__ __forceinline__ void mbarrier_arrive_cluster_relaxed(uint32_t peer_barrier) {
  asm volatile("mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%0];" ::"r"(peer_barrier)
               : "memory");
}

// PTX: mbarrier.arrive.expect_tx on a barrier of a block of the cluster.
__device__ __forceinline__ void mbarrier_arrive_expect_tx_cluster(uint32_t peer_barrier,
                                                                  uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%0], %1;" ::"r"(
                   peer_barrier),
               "r"(bytes)
               : "memory");
}

// PTX: mbarrier.test_wait.parity. Never suspends.
__device__ __forceinline__ bool mbarrier_test_wait(uint32_t barrier, uint32_t parity) {
  uint32_t is_done;
  asm volatile(
      "{\n.reg .pred done;\n"
      "mbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;\n"
      "selp.u32 %0, 1, 0, done;\n}"
      : "=r"(is_done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return is_done != 0;
}

// PTX: mbarrier.try_wait.parity. May suspend for a time the hardware chooses.
__device__ __forceinline__ bool mbarrier_try_wait(uint32_t barrier, uint32_t parity) {
  uint32_t is_done;
  asm volatile(
      "{\n.reg .pred done;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
      "selp.u32 %0, 1, 0, done;\n}"
      : "=r"(is_done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return is_done != 0;
}

// PTX: mbarrier.try_wait.parity with a limit on the suspension, in nanoseconds.
__device__ __forceinline__ bool mbarrier_try_wait(uint32_t barrier, uint32_t parity,
                                                  uint32_t suspend_ns) {
  uint32_t is_done;
  asm volatile(
      "{\n.reg .pred done;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2, %3;\n"
      "selp.u32 %0, 1, 0, done;\n}"
      : "=r"(is_done)
      : "r"(barrier), "r"(parity), "r"(suspend_ns)
      : "memory");
  return is_done != 0;
}

// PTX: mbarrier.try_wait.parity, acquiring what other blocks of the cluster released.
__device__ __forceinline__ bool mbarrier_try_wait_cluster(uint32_t barrier, uint32_t parity) {
  uint32_t is_done;
  asm volatile(
      "{\n.reg .pred done;\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%1], %2;\n"
      "selp.u32 %0, 1, 0, done;\n}"
      : "=r"(is_done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return is_done != 0;
}

__device__ __forceinline__ void mbarrier_wait(uint32_t barrier, uint32_t parity) {
  while (!mbarrier_try_wait(barrier, parity)) {
  }
}

// For long waits: the warp sleeps up to `suspend_ns` between two tries.
__device__ __forceinline__ void mbarrier_wait(uint32_t barrier, uint32_t parity,
                                              uint32_t suspend_ns) {
  while (!mbarrier_try_wait(barrier, parity, suspend_ns)) {
  }
}

__device__ __forceinline__ void mbarrier_wait_cluster(uint32_t barrier, uint32_t parity) {
  while (!mbarrier_try_wait_cluster(barrier, parity)) {
  }
}

// PTX: fence.mbarrier_init. Makes initialised barriers visible to the cluster and to TMA; a block
// or cluster barrier must still follow before others use them.
__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// PTX: fence.proxy.async. Orders ordinary accesses to shared memory before later ones by TMA and
// the tensor cores. Every writing thread executes it, before the barrier.
__device__ __forceinline__ void fence_proxy_async_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// PTX: fence.proxy.async, for all state spaces: also for global memory that TMA reads next.
__device__ __forceinline__ void fence_proxy_async() {
  asm volatile("fence.proxy.async;" ::: "memory");
}

}  // namespace tessera::tile::ptx
