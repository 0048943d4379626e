// ldmatrix: 8x8 tiles of 16-bit elements from shared memory into MMA fragments, sm_75 up.
// SPDX-License-Identifier: MIT
//
// Each lane gives the address of one row of 16 bytes: lanes 0-7 those of the first tile, 8-15 of
// the second, and so on. Lane l receives the 4 bytes l % 4 of row l / 4 of each tile; with trans,
// the tile of 16-bit elements is transposed on the way.
#pragma once

#include <cstdint>

namespace tessera::tile::ptx {

// PTX: ldmatrix.x1.
__device__ __forceinline__ void ldmatrix(uint32_t (&tiles)[1], uint32_t row_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
               : "=r"(tiles[0])
               : "r"(row_address)
               : "memory");
}

// PTX: ldmatrix.x2.
__device__ __forceinline__ void ldmatrix(uint32_t (&tiles)[2], uint32_t row_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(tiles[0]), "=r"(tiles[1])
               : "r"(row_address)
               : "memory");
}

// PTX: ldmatrix.x4.
__device__ __forceinline__ void ldmatrix(uint32_t (&tiles)[4], uint32_t row_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(tiles[0]), "=r"(tiles[1]), "=r"(tiles[2]), "=r"(tiles[3])
               : "r"(row_address)
               : "memory");
}

// PTX: ldmatrix.x1.trans.
__device__ __forceinline__ void ldmatrix_trans(uint32_t (&tiles)[1], uint32_t row_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
               : "=r"(tiles[0])
               : "r"(row_address)
               : "memory");
}

// PTX: ldmatrix.x2.trans.
__device__ __forceinline__ void ldmatrix_trans(uint32_t (&tiles)[2], uint32_t row_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(tiles[0]), "=r"(tiles[1])
               : "r"(row_address)
               : "memory");
}

// PTX: ldmatrix.x4.trans.
__device__ __forceinline__ void ldmatrix_trans(uint32_t (&tiles)[4], uint32_t row_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(tiles[0]), "=r"(tiles[1]), "=r"(tiles[2]), "=r"(tiles[3])
               : "r"(row_address)
               : "memory");
}

}  // namespace tessera::tile::ptx
