// Thread block clusters: rank, barrier, and the shared memory of the other blocks.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "tile/ptx/mbarrier.cuh"

namespace tessera::tile::ptx {

// PTX: %cluster_ctarank.
__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// PTX: %cluster_nctarank.
__device__ __forceinline__ uint32_t cluster_size() {
  uint32_t size;
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  return size;
}

// PTX: barrier.cluster.arrive (release). Every thread of every block of the cluster.
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

// PTX: barrier.cluster.arrive.relaxed. Orders no memory accesses: for "no block has exited yet".
__device__ __forceinline__ void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

// PTX: barrier.cluster.wait (acquire).
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// PTX: ld.shared::cluster. `peer_address` comes from mapa.
__device__ __forceinline__ uint32_t load_cluster(uint32_t peer_address) {
  uint32_t value;
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(peer_address) : "memory");
  return value;
}

// PTX: ld.shared::cluster.v4, aligned to 16 bytes.
__device__ __forceinline__ float4 load_cluster_v4(uint32_t peer_address) {
  float4 value;
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
               : "r"(peer_address)
               : "memory");
  return value;
}

// PTX: st.shared::cluster.
__device__ __forceinline__ void store_cluster(uint32_t peer_address, uint32_t value) {
  asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(peer_address), "r"(value) : "memory");
}

// PTX: st.async. Writes 16 bytes into a block of the cluster and completes that many transaction
// bytes on a barrier of the same block; both addresses come from mapa with the same rank.
__device__ __forceinline__ void store_async_cluster(uint32_t peer_address, uint4 value,
                                                    uint32_t peer_barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, "
      "[%5];" ::"r"(peer_address),
      "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w), "r"(peer_barrier)
      : "memory");
}

}  // namespace tessera::tile::ptx
