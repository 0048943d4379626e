// Words in the shared memory of the other blocks of a cluster: 64-bit stores, and atomic adds.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace tessera::tile::ptx {

// PTX: st.shared::cluster. `peer_address` comes from mapa.
__device__ __forceinline__ void store_cluster_word(uint32_t peer_address, uint64_t value) {
  asm volatile("st.shared::cluster.u64 [%0], %1;" ::"r"(peer_address), "l"(value) : "memory");
}

// PTX: atom.shared::cluster.add. Returns the value before.
__device__ __forceinline__ uint32_t add_cluster(uint32_t peer_address, uint32_t value) {
  uint32_t before;
  asm volatile("atom.shared::cluster.add.u32 %0, [%1], %2;"
               : "=r"(before)
               : "r"(peer_address), "r"(value)
               : "memory");
  return before;
}

}  // namespace tessera::tile::ptx
