// The number of a thread block's cluster in its grid.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace tessera::tile::ptx {

// PTX: %clusterid, of a grid with one axis.
__device__ __forceinline__ uint32_t cluster_index() {
  uint32_t index;
  asm volatile("mov.u32 %0, %%clusterid.x;" : "=r"(index));
  return index;
}

}  // namespace tessera::tile::ptx
