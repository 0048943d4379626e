// stmatrix: MMA fragments into 8x8 tiles of 16-bit elements in shared memory, sm_90 up.
// SPDX-License-Identifier: MIT
//
// The inverse of ldmatrix: each lane gives the address of one row of 16 bytes, lanes 0-7 for the
// first tile, 8-15 for the second, and so on.
#pragma once

#include <cstdint>

namespace tessera::tile::ptx {

// PTX: stmatrix.x1.
__device__ __forceinline__ void stmatrix(uint32_t row_address, const uint32_t (&tiles)[1]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" ::"r"(row_address),
               "r"(tiles[0])
               : "memory");
}

// PTX: stmatrix.x2.
__device__ __forceinline__ void stmatrix(uint32_t row_address, const uint32_t (&tiles)[2]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(row_address),
               "r"(tiles[0]), "r"(tiles[1])
               : "memory");
}

// PTX: stmatrix.x4.
__device__ __forceinline__ void stmatrix(uint32_t row_address, const uint32_t (&tiles)[4]) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row_address),
      "r"(tiles[0]), "r"(tiles[1]), "r"(tiles[2]), "r"(tiles[3])
      : "memory");
}

// PTX: stmatrix.x1.trans.
__device__ __forceinline__ void stmatrix_trans(uint32_t row_address, const uint32_t (&tiles)[1]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0], {%1};" ::"r"(row_address),
               "r"(tiles[0])
               : "memory");
}

// PTX: stmatrix.x2.trans.
__device__ __forceinline__ void stmatrix_trans(uint32_t row_address, const uint32_t (&tiles)[2]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(row_address),
               "r"(tiles[0]), "r"(tiles[1])
               : "memory");
}

// PTX: stmatrix.x4.trans.
__device__ __forceinline__ void stmatrix_trans(uint32_t row_address, const uint32_t (&tiles)[4]) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row_address),
      "r"(tiles[0]), "r"(tiles[1]), "r"(tiles[2]), "r"(tiles[3])
      : "memory");
}

}  // namespace tessera::tile::ptx
