// Tensor copies of TMA: boxes of 2 to 5 dimensions of the tensor that a map describes.
// SPDX-License-Identifier: MIT
//
// A map comes from tensor_map.h and reaches the kernel as a const __grid_constant__ parameter.
// Coordinates count elements, innermost dimension first; elements outside the tensor load as zeros
// and are not stored. Shared memory is aligned to 128 bytes, or to the swizzle's repeat.
//
// Observed on the H200. An illegal instruction: an innermost coordinate that is not a multiple of
// 16 bytes, and a store at a negative coordinate (a load may begin there). A store clips the
// innermost dimension in steps of 16 bytes: if rows are not a multiple of that, it writes into
// their padding.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "tile/ptx/tma.cuh"

namespace tessera::tile::ptx {

// Where a box starts: Coord{x, y} has rank 2.
template <int kRank>
struct Coord {
  static_assert(kRank >= 2 && kRank <= 5);
  int at[kRank];
};
template <class... Ints>
Coord(Ints...) -> Coord<sizeof...(Ints)>;

// PTX: prefetch.tensormap. Hides the first use's fetch of the 128 bytes of the map.
__device__ __forceinline__ void prefetch_tensormap(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// PTX: cp.async.bulk.tensor, global to shared.
template <int kRank>
__device__ __forceinline__ void tensor_load(uint32_t destination, const CUtensorMap* map,
                                            Coord<kRank> c, uint32_t barrier) {
  if constexpr (kRank == 2) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3}], [%4];" ::"r"(destination),
        "l"(map), "r"(c.at[0]), "r"(c.at[1]), "r"(barrier)
        : "memory");
  } else if constexpr (kRank == 3) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(destination),
        "l"(map), "r"(c.at[0]), "r"(c.at[1]), "r"(c.at[2]), "r"(barrier)
        : "memory");
  } else if constexpr (kRank == 4) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(destination),
        "l"(map), "r"(c.at[0]), "r"(c.at[1]), "r"(c.at[2]), "r"(c.at[3]), "r"(barrier)
        : "memory");
  } else {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3, %4, %5, %6}], [%7];" ::"r"(destination),
        "l"(map), "r"(c.at[0]), "r"(c.at[1]), "r"(c.at[2]), "r"(c.at[3]), "r"(c.at[4]), "r"(barrier)
        : "memory");
  }
}

// PTX: cp.async.bulk.tensor, global to shared, with .L2::cache_hint.
template <int kRank>
__device__ __forceinline__ void tensor_load(uint32_t destination, const CUtensorMap* map,
                                            Coord<kRank> c, uint32_t barrier, CachePolicy policy) {
  if constexpr (kRank == 2) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::"
        "cache_hint "
        "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(destination),
        "l"(map), "r"(c.at[0]), "r"(c.at[1]), "r"(barrier), "l"(policy.bits)
        : "memory");
  } else if constexpr (kRank == 3) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::"
        "cache_hint "
        "[%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(destination),
        "l"(map), "r"(c.at[0]), "r"(c.at[1]), "r"(c.at[2]), "r"(barrier), "l"(policy.bits)
        : "memory");
  } else if constexpr (kRank == 4) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::"
        "cache_hint "
        "[%0], [%1, {%2, %3, %4, %5}], [%6], %7;" ::"r"(destination),
        "l"(map), "r"(c.at[0]), "r"(c.at[1]), "r"(c.at[2]), "r"(c.at[3]), "r"(barrier),
        "l"(policy.bits)
        : "memory");
  } else {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::"
        "cache_hint "
        "[%0], [%1, {%2, %3, %4, %5, %6}], [%7], %8;" ::"r"(destination),
        "l"(map), "r"(c.at[0]), "r"(c.at[1]), "r"(c.at[2]), "r"(c.at[3]), "r"(c.at[4]),
        "r"(barrier), "l"(policy.bits)
        : "memory");
  }
}

// PTX: cp.async.bulk.tensor with .multicast::cluster. The box, and its bytes on the barrier, reach
// the same places in every block of the cluster whose bit is set.
template <int kRank>
__device__ __forceinline__ void tensor_load_multicast(uint32_t destination, const CUtensorMap* map,
                                                      Coord<kRank> c, uint32_t barrier,
                                                      uint16_t block_mask) {
  if constexpr (kRank == 2) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes."
        "multicast::cluster "
        "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(destination),
        "l"(map), "r"(c.at[0]), "r"(c.at[1]), "r"(barrier), "h"(block_mask)
        : "memory");
  } else if constexpr (kRank == 3) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes."
        "multicast::cluster "
        "[%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(destination),
        "l"(map), "r"(c.at[0]), "r"(c.at[1]), "r"(c.at[2]), "r"(barrier), "h"(block_mask)
        : "memory");
  } else if constexpr (kRank == 4) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes."
        "multicast::cluster "
        "[%0], [%1, {%2, %3, %4, %5}], [%6], %7;" ::"r"(destination),
        "l"(map), "r"(c.at[0]), "r"(c.at[1]), "r"(c.at[2]), "r"(c.at[3]), "r"(barrier),
        "h"(block_mask)
        : "memory");
  } else {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes."
        "multicast::cluster "
        "[%0], [%1, {%2, %3, %4, %5, %6}], [%7], %8;" ::"r"(destination),
        "l"(map), "r"(c.at[0]), "r"(c.at[1]), "r"(c.at[2]), "r"(c.at[3]), "r"(c.at[4]),
        "r"(barrier), "h"(block_mask)
        : "memory");
  }
}

// PTX: cp.async.bulk.tensor with .multicast::cluster and .L2::cache_hint.
template <int kRank>
__device__ __forceinline__ void tensor_load_multicast(uint32_t destination, const CUtensorMap* map,
                                                      Coord<kRank> c, uint32_t barrier,
                                                      uint16_t block_mask, CachePolicy policy) {
  if constexpr (kRank == 2) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes."
        "multicast::cluster.L2::cache_hint "
        "[%0], [%1, {%2, %3}], [%4], %5, %6;" ::"r"(destination),
        "l"(map), "r"(c.at[0]), "r"(c.at[1]), "r"(barrier), "h"(block_mask), "l"(policy.bits)
        : "memory");
  } else if constexpr (kRank == 3) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes."
        "multicast::cluster.L2::cache_hint "
        "[%0], [%1, {%2, %3, %4}], [%5], %6, %7;" ::"r"(destination),
        "l"(map), "r"(c.at[0]), "r"(c.at[1]), "r"(c.at[2]), "r"(barrier), "h"(block_mask),
        "l"(policy.bits)
        : "memory");
  } else if constexpr (kRank == 4) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes."
        "multicast::cluster.L2::cache_hint "
        "[%0], [%1, {%2, %3, %4, %5}], [%6], %7, %8;" ::"r"(destination),
        "l"(map), "r"(c.at[0]), "r"(c.at[1]), "r"(c.at[2]), "r"(c.at[3]), "r"(barrier),
        "h"(block_mask), "l"(policy.bits)
        : "memory");
  } else {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes."
        "multicast::cluster.L2::cache_hint "
        "[%0], [%1, {%2, %3, %4, %5, %6}], [%7], %8, %9;" ::"r"(destination),
        "l"(map), "r"(c.at[0]), "r"(c.at[1]), "r"(c.at[2]), "r"(c.at[3]), "r"(c.at[4]),
        "r"(barrier), "h"(block_mask), "l"(policy.bits)
        : "memory");
  }
}

// PTX: cp.async.bulk.tensor, shared to global.
template <int kRank>
__device__ __forceinline__ void tensor_store(const CUtensorMap* map, Coord<kRank> c,
                                             uint32_t source) {
  if constexpr (kRank == 2) {
    asm volatile(
        "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group "
        "[%0, {%1, %2}], [%3];" ::"l"(map),
        "r"(c.at[0]), "r"(c.at[1]), "r"(source)
        : "memory");
  } else if constexpr (kRank == 3) {
    asm volatile(
        "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group "
        "[%0, {%1, %2, %3}], [%4];" ::"l"(map),
        "r"(c.at[0]), "r"(c.at[1]), "r"(c.at[2]), "r"(source)
        : "memory");
  } else if constexpr (kRank == 4) {
    asm volatile(
        "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group "
        "[%0, {%1, %2, %3, %4}], [%5];" ::"l"(map),
        "r"(c.at[0]), "r"(c.at[1]), "r"(c.at[2]), "r"(c.at[3]), "r"(source)
        : "memory");
  } else {
    asm volatile(
        "cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group "
        "[%0, {%1, %2, %3, %4, %5}], [%6];" ::"l"(map),
        "r"(c.at[0]), "r"(c.at[1]), "r"(c.at[2]), "r"(c.at[3]), "r"(c.at[4]), "r"(source)
        : "memory");
  }
}

// PTX: cp.async.bulk.tensor, shared to global, with .L2::cache_hint.
template <int kRank>
__device__ __forceinline__ void tensor_store(const CUtensorMap* map, Coord<kRank> c,
                                             uint32_t source, CachePolicy policy) {
  if constexpr (kRank == 2) {
    asm volatile(
        "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group.L2::cache_hint "
        "[%0, {%1, %2}], [%3], %4;" ::"l"(map),
        "r"(c.at[0]), "r"(c.at[1]), "r"(source), "l"(policy.bits)
        : "memory");
  } else if constexpr (kRank == 3) {
    asm volatile(
        "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group.L2::cache_hint "
        "[%0, {%1, %2, %3}], [%4], %5;" ::"l"(map),
        "r"(c.at[0]), "r"(c.at[1]), "r"(c.at[2]), "r"(source), "l"(policy.bits)
        : "memory");
  } else if constexpr (kRank == 4) {
    asm volatile(
        "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group.L2::cache_hint "
        "[%0, {%1, %2, %3, %4}], [%5], %6;" ::"l"(map),
        "r"(c.at[0]), "r"(c.at[1]), "r"(c.at[2]), "r"(c.at[3]), "r"(source), "l"(policy.bits)
        : "memory");
  } else {
    asm volatile(
        "cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group.L2::cache_hint "
        "[%0, {%1, %2, %3, %4, %5}], [%6], %7;" ::"l"(map),
        "r"(c.at[0]), "r"(c.at[1]), "r"(c.at[2]), "r"(c.at[3]), "r"(c.at[4]), "r"(source),
        "l"(policy.bits)
        : "memory");
  }
}

// PTX: cp.reduce.async.bulk.tensor, .add. Adds the box to global memory, in the type of the map.
// The order of several additions is undefined: only for integers, or one addition per element.
template <int kRank>
__device__ __forceinline__ void tensor_reduce_add(const CUtensorMap* map, Coord<kRank> c,
                                                  uint32_t source) {
  if constexpr (kRank == 2) {
    asm volatile(
        "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group "
        "[%0, {%1, %2}], [%3];" ::"l"(map),
        "r"(c.at[0]), "r"(c.at[1]), "r"(source)
        : "memory");
  } else if constexpr (kRank == 3) {
    asm volatile(
        "cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.tile.bulk_group "
        "[%0, {%1, %2, %3}], [%4];" ::"l"(map),
        "r"(c.at[0]), "r"(c.at[1]), "r"(c.at[2]), "r"(source)
        : "memory");
  } else if constexpr (kRank == 4) {
    asm volatile(
        "cp.reduce.async.bulk.tensor.4d.global.shared::cta.add.tile.bulk_group "
        "[%0, {%1, %2, %3, %4}], [%5];" ::"l"(map),
        "r"(c.at[0]), "r"(c.at[1]), "r"(c.at[2]), "r"(c.at[3]), "r"(source)
        : "memory");
  } else {
    asm volatile(
        "cp.reduce.async.bulk.tensor.5d.global.shared::cta.add.tile.bulk_group "
        "[%0, {%1, %2, %3, %4, %5}], [%6];" ::"l"(map),
        "r"(c.at[0]), "r"(c.at[1]), "r"(c.at[2]), "r"(c.at[3]), "r"(c.at[4]), "r"(source)
        : "memory");
  }
}

// PTX: cp.async.bulk.prefetch.tensor. Brings the box into L2.
template <int kRank>
__device__ __forceinline__ void tensor_prefetch(const CUtensorMap* map, Coord<kRank> c) {
  if constexpr (kRank == 2) {
    asm volatile(
        "cp.async.bulk.prefetch.tensor.2d.L2.global.tile "
        "[%0, {%1, %2}];" ::"l"(map),
        "r"(c.at[0]), "r"(c.at[1])
        : "memory");
  } else if constexpr (kRank == 3) {
    asm volatile(
        "cp.async.bulk.prefetch.tensor.3d.L2.global.tile "
        "[%0, {%1, %2, %3}];" ::"l"(map),
        "r"(c.at[0]), "r"(c.at[1]), "r"(c.at[2])
        : "memory");
  } else if constexpr (kRank == 4) {
    asm volatile(
        "cp.async.bulk.prefetch.tensor.4d.L2.global.tile "
        "[%0, {%1, %2, %3, %4}];" ::"l"(map),
        "r"(c.at[0]), "r"(c.at[1]), "r"(c.at[2]), "r"(c.at[3])
        : "memory");
  } else {
    asm volatile(
        "cp.async.bulk.prefetch.tensor.5d.L2.global.tile "
        "[%0, {%1, %2, %3, %4, %5}];" ::"l"(map),
        "r"(c.at[0]), "r"(c.at[1]), "r"(c.at[2]), "r"(c.at[3]), "r"(c.at[4])
        : "memory");
  }
}

}  // namespace tessera::tile::ptx
