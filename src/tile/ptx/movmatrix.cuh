// movmatrix: an 8x8 tile of 16-bit elements, spread over a warp, transposed; sm_75 up.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace tessera::tile::ptx {

// PTX: movmatrix.trans. Lane l gives columns 2 * (l % 4) and the next of row l / 4, and receives
// the same of the transposed tile.
__device__ __forceinline__ uint32_t movmatrix_trans(uint32_t pair) {
  uint32_t transposed;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(pair));
  return transposed;
}

}  // namespace tessera::tile::ptx
