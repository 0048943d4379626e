// The swizzled 128 x 128 tile of mma.sync that step 08 introduces and step 09 keeps.
// SPDX-License-Identifier: MIT
#pragma once

#include "ladder/gemm/steps.h"
#include "tile/fragment.cuh"
#include "tile/ptx/ldmatrix.cuh"
#include "tile/ptx/mma.cuh"
#include "tile/swizzle.cuh"

namespace tessera::ladder {

// A block of 4 warps, 2 along m and 2 along n, each with 64 x 64 outputs.
struct MmaTile {
  static constexpr int kTile = 128;  // of m and of n
  static constexpr int kTileK = 64;  // 128 bytes: one row of the swizzle
  static constexpr int kRowBytes = kTileK * static_cast<int>(sizeof(Bf16));
  static constexpr int kWarpTile = 64;
  static constexpr int kThreads = 128;
  static constexpr int kChunksPerRow = kRowBytes / 16;
  static constexpr int kChunksPerThread = kTile * kChunksPerRow / kThreads;  // of one operand

  struct Stage {
    alignas(1024) unsigned char a[kTile * kRowBytes];
    alignas(1024) unsigned char b[kTile * kRowBytes];
  };

  // A thread's sums: 4 tiles of 16 rows, 8 of 8 columns, in mma.sync's layout.
  using Sums = float[4][8][4];

  // Where byte `byte` of row `row` lies: the 16-byte chunks of a row are exchanged by the row's
  // lowest three bits, so that one chunk of 8 rows meets all 32 banks, at no cost in memory.
  __device__ static uint32_t place(int row, int byte) {
    return tile::swizzled(tile::Swizzle::b128, static_cast<uint32_t>(row * kRowBytes + byte));
  }

  // Calls copy(offset in the stage's operand, row, k) for each chunk this thread brings.
  template <class Copy>
  __device__ static void for_each_chunk(const Copy& copy) {
    TESSERA_UNROLL
    for (int i = 0; i < kChunksPerThread; ++i) {
      const int chunk = static_cast<int>(threadIdx.x) + kThreads * i;
      const int row = chunk / kChunksPerRow;
      const int byte = chunk % kChunksPerRow * 16;
      copy(place(row, byte), row, byte / static_cast<int>(sizeof(Bf16)));
    }
  }

  // This warp's first row and column in the tile.
  __device__ static int row() { return static_cast<int>(threadIdx.x) / 64 * kWarpTile; }
  __device__ static int col() { return static_cast<int>(threadIdx.x) / 32 % 2 * kWarpTile; }

  // `a` and `b` are shared-memory addresses of a stage's operands.
  __device__ static void multiply(uint32_t a, uint32_t b, Sums& sums) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const tile::MatrixRow a_row = tile::matrix_row_16x32(lane);
    const tile::MatrixRow b_row = tile::matrix_row_two_8x32(lane);
    TESSERA_UNROLL
    for (int k_byte = 0; k_byte < kRowBytes; k_byte += 32) {
      uint32_t a_tiles[4][4];
      uint32_t b_tiles[4][4];  // each two tiles of 8 columns
      TESSERA_UNROLL
      for (int i = 0; i < 4; ++i) {
        tile::ptx::ldmatrix(a_tiles[i], a + place(row() + 16 * i + a_row.row, k_byte + a_row.byte));
        tile::ptx::ldmatrix(b_tiles[i], b + place(col() + 16 * i + b_row.row, k_byte + b_row.byte));
      }
      TESSERA_UNROLL
      for (int i = 0; i < 4; ++i) {
        TESSERA_UNROLL
        for (int j = 0; j < 8; ++j) {
          const uint32_t b_tile[2] = {b_tiles[j / 2][j % 2 * 2], b_tiles[j / 2][j % 2 * 2 + 1]};
          tile::ptx::mma<Bf16>(sums[i][j], a_tiles[i], b_tile);
        }
      }
    }
  }

  // `d` is [rows, n] at the tile's first element. Two columns per store, so that a quad of lanes
  // writes 16 bytes of a row.
  __device__ static void store(const Sums& sums, Bf16* d, int n) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    TESSERA_UNROLL
    for (int i = 0; i < 4; ++i) {
      TESSERA_UNROLL
      for (int j = 0; j < 8; ++j) {
        TESSERA_UNROLL
        for (int pair = 0; pair < 4; pair += 2) {
          const tile::TileCoord at = tile::mma_accumulator_coord(lane, pair);
          const int64_t r = row() + 16 * i + at.row;
          *reinterpret_cast<uint32_t*>(d + r * n + col() + 8 * j + at.col) =
              tile::pack_pair<Bf16>(sums[i][j][pair], sums[i][j][pair + 1]);
        }
      }
    }
  }
};

}  // namespace tessera::ladder
