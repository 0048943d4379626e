// TMA, the copy engine of sm_90: contiguous bulk copies, bulk groups, L2 policies.
// SPDX-License-Identifier: MIT
//
// Addresses in shared memory and in global memory are aligned to 16 bytes, sizes are multiples of
// 16. One thread issues a copy. Loads complete on an mbarrier, in bytes; stores in bulk groups.
// Tensor copies: tma_tensor.cuh.
#pragma once

#include <cstdint>

namespace tessera::tile::ptx {

// What L2 should do with the lines of a copy; made by the functions below, once per kernel.
struct CachePolicy {
  uint64_t bits;
};

// PTX: createpolicy. For data read once.
__device__ __forceinline__ CachePolicy createpolicy_evict_first() {
  CachePolicy policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy.bits));
  return policy;
}

// What createpolicy gives for evict_first and for evict_normal, as constants that need no register.
inline constexpr CachePolicy kEvictFirst{0x12f0000000000000};
inline constexpr CachePolicy kEvictNormal{0x1000000000000000};

// PTX: createpolicy. For data that other blocks will read soon.
__device__ __forceinline__ CachePolicy createpolicy_evict_last() {
  CachePolicy policy;
  asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy.bits));
  return policy;
}

// PTX: cp.async.bulk, global to shared.
__device__ __forceinline__ void bulk_load(uint32_t destination, const void* source, uint32_t bytes,
                                          uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(destination),
      "l"(__cvta_generic_to_global(source)), "r"(bytes), "r"(barrier)
      : "memory");
}

// PTX: cp.async.bulk with .L2::cache_hint.
__device__ __forceinline__ void bulk_load(uint32_t destination, const void* source, uint32_t bytes,
                                          uint32_t barrier, CachePolicy policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1], %2, [%3], %4;" ::"r"(destination),
      "l"(__cvta_generic_to_global(source)), "r"(bytes), "r"(barrier), "l"(policy.bits)
      : "memory");
}

// PTX: cp.async.bulk with .multicast::cluster. The data, and the bytes on the barrier, reach the
// same places in every block of the cluster whose bit is set.
__device__ __forceinline__ void bulk_load_multicast(uint32_t destination, const void* source,
                                                    uint32_t bytes, uint32_t barrier,
                                                    uint16_t block_mask) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1], %2, [%3], %4;" ::"r"(destination),
      "l"(__cvta_generic_to_global(source)), "r"(bytes), "r"(barrier), "h"(block_mask)
      : "memory");
}

// PTX: cp.async.bulk, shared to global.
__device__ __forceinline__ void bulk_store(void* destination, uint32_t source, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(
                   __cvta_generic_to_global(destination)),
               "r"(source), "r"(bytes)
               : "memory");
}

// PTX: cp.async.bulk, shared to global, with .L2::cache_hint.
__device__ __forceinline__ void bulk_store(void* destination, uint32_t source, uint32_t bytes,
                                           CachePolicy policy) {
  asm volatile(
      "cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%0], [%1], %2, %3;" ::"l"(
          __cvta_generic_to_global(destination)),
      "r"(source), "r"(bytes), "l"(policy.bits)
      : "memory");
}

// PTX: cp.async.bulk, from this block's shared memory to a block of the cluster; `peer_destination`
// and `peer_barrier` come from mapa with the same rank.
__device__ __forceinline__ void bulk_copy_to_peer(uint32_t peer_destination, uint32_t source,
                                                  uint32_t bytes, uint32_t peer_barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
      "[%0], [%1], %2, [%3];" ::"r"(peer_destination),
      "r"(source), "r"(bytes), "r"(peer_barrier)
      : "memory");
}

// PTX: cp.async.bulk.prefetch.L2.
__device__ __forceinline__ void bulk_prefetch(const void* source, uint32_t bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(__cvta_generic_to_global(source)),
               "r"(bytes)
               : "memory");
}

// PTX: cp.async.bulk.commit_group. Groups belong to the thread that issued the copies.
__device__ __forceinline__ void bulk_commit_group() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// PTX: cp.async.bulk.wait_group. At most kPending groups unfinished; the writes of the others are
// done.
template <int kPending>
__device__ __forceinline__ void bulk_wait_group() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kPending) : "memory");
}

// PTX: cp.async.bulk.wait_group.read. The same, but for the reads alone: the shared memory of the
// finished groups may be reused.
template <int kPending>
__device__ __forceinline__ void bulk_wait_group_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

}  // namespace tessera::tile::ptx
