// The tiles of step 04: 64 queries by 64 keys, swizzled bf16 for ldmatrix and mma.sync.
// SPDX-License-Identifier: MIT
#pragma once

#include <cmath>

#include "ladder/attention/steps.h"
#include "tile/fragment.cuh"
#include "tile/ptx/ldmatrix.cuh"
#include "tile/ptx/mma.cuh"
#include "tile/swizzle.cuh"

namespace tessera::ladder::attention {

// A block of 4 warps, 16 queries each. In every 16 x 8 block of scores or sums a thread holds two
// adjacent columns of rows lane / 4 and lane / 4 + 8 (tile/fragment.cuh).
struct MmaTile {
  static constexpr int kSide = 64;  // queries, and keys
  static constexpr int kThreads = 128;
  static constexpr int kSlabBytes = 128;  // of a row: the width of the swizzle
  static constexpr int kRowBytes = kHeadDim * static_cast<int>(sizeof(Bf16));
  static constexpr int kTileBytes = kSide * kRowBytes;
  static constexpr int kSteps = kHeadDim / 16;  // of the product of q and k
  static constexpr int kKeySteps = kSide / 16;  // of the product with v

  struct Shared {
    alignas(1024) unsigned char q[kTileBytes];
    alignas(1024) unsigned char k[kTileBytes];
    alignas(1024) unsigned char v[kTileBytes];
  };
  using Scores = float[kSide / 8][4];
  using Sums = float[kHeadDim / 8][4];

  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  __device__ static int first_row() { return static_cast<int>(threadIdx.x) / 32 * 16; }

  // Where byte `byte` of the first slab of row `row` lies: a tile is two slabs of 64 rows by 128
  // bytes, in which the 16-byte chunks of a row are exchanged by the row's lowest three bits.
  __device__ static uint32_t place(int row, int byte) {
    return tile::swizzled(tile::Swizzle::b128, static_cast<uint32_t>(row * kSlabBytes + byte));
  }
  // The place `step` * 32 bytes after such a place and 16 * block rows below it. In this form 32
  // addresses are 4 registers and constants.
  __device__ static uint32_t moved(uint32_t place, int step, int block) {
    return (place ^ static_cast<uint32_t>(step % 4 * 32)) +
           static_cast<uint32_t>(step / 4 * kSide * kSlabBytes + block * 16 * kSlabBytes);
  }

  // 64 rows, the first at `rows`.
  __device__ static void load(unsigned char* to, const Bf16* rows, int64_t stride) {
    constexpr int kChunksPerRow = kRowBytes / 16;
    constexpr int kRowsAtOnce = kThreads / kChunksPerRow;  // 8, so the exchange is the same
    const int row = static_cast<int>(threadIdx.x) / kChunksPerRow;
    const int chunk = static_cast<int>(threadIdx.x) % kChunksPerRow;
    to += moved(place(row, chunk % 2 * 16), chunk / 2, 0);
    rows += row * stride + 8 * chunk;
    TESSERA_UNROLL
    for (int i = 0; i < kSide / kRowsAtOnce; ++i) {
      *reinterpret_cast<uint4*>(to + i * kRowsAtOnce * kSlabBytes) =
          *reinterpret_cast<const uint4*>(rows + i * kRowsAtOnce * stride);
    }
  }

  __device__ static void multiply_qk(uint32_t q_tile, uint32_t k_tile, Scores& s) {
    const tile::MatrixRow q_at = tile::matrix_row_16x32(lane());
    const tile::MatrixRow k_at = tile::matrix_row_two_8x32(lane());
    const uint32_t q_first = place(first_row() + q_at.row, q_at.byte);
    const uint32_t k_first = place(k_at.row, k_at.byte);
    TESSERA_UNROLL
    for (int step = 0; step < kSteps; ++step) {
      uint32_t q[4];  // 16 queries by 16 of d
      tile::ptx::ldmatrix(q, q_tile + moved(q_first, step, 0));
      TESSERA_UNROLL
      for (int j = 0; j < kSide / 16; ++j) {
        uint32_t k[4];  // 16 keys by 16 of d
        tile::ptx::ldmatrix(k, k_tile + moved(k_first, step, j));
        multiply_pair(q, k, s[2 * j], s[2 * j + 1]);
      }
    }
  }

  // `weights` are rounded to bf16. The layout of a result is the layout of an operand.
  __device__ static void multiply_pv(const Scores& weights, uint32_t v_tile, Sums& sums) {
    const tile::MatrixRow at = tile::matrix_row_16x32(lane());
    const uint32_t first = place(at.row, at.byte);
    TESSERA_UNROLL
    for (int step = 0; step < kKeySteps; ++step) {
      uint32_t p[4];
      TESSERA_UNROLL
      for (int reg = 0; reg < 4; ++reg) {  // tile::a_fragment_coord: rows, then columns
        const float* pair = &weights[2 * step + reg / 2][reg % 2 * 2];
        p[reg] = tile::pack_pair<Bf16>(pair[0], pair[1]);
      }
      TESSERA_UNROLL
      for (int j = 0; j < kHeadDim / 16; ++j) {
        uint32_t v[4];  // 16 keys by 16 columns, transposed
        tile::ptx::ldmatrix_trans(v, v_tile + moved(first, j, step));
        multiply_pair(p, v, sums[2 * j], sums[2 * j + 1]);
      }
    }
  }

  __device__ static void multiply_pair(const uint32_t (&a)[4], const uint32_t (&b)[4],
                                       float (&low)[4], float (&high)[4]) {
    const uint32_t b_low[2] = {b[0], b[1]};
    const uint32_t b_high[2] = {b[2], b[3]};
    tile::ptx::mma<Bf16>(low, a, b_low);
    tile::ptx::mma<Bf16>(high, a, b_high);
  }

  // For the tile whose queries and keys are the same tokens.
  __device__ static void mask_above_diagonal(Scores& s) {
    TESSERA_UNROLL
    for (int j = 0; j < kSide / 8; ++j) {
      TESSERA_UNROLL
      for (int e = 0; e < 4; ++e) {
        const tile::TileCoord at = tile::mma_accumulator_coord(lane(), e);
        if (8 * j + at.col > first_row() + at.row) s[j][e] = -INFINITY;
      }
    }
  }

  // Row `half` of this thread's two, times `factor`; `rows` is the tile's first. Two columns per
  // store, so that a quad of lanes writes 16 bytes of a row.
  __device__ static void store_row(Bf16* rows, int64_t stride, int half, const Sums& sums,
                                   float factor) {
    const tile::TileCoord at = tile::mma_accumulator_coord(lane(), 2 * half);
    Bf16* row = rows + (first_row() + at.row) * stride + at.col;
    TESSERA_UNROLL
    for (int j = 0; j < kHeadDim / 8; ++j) {
      *reinterpret_cast<uint32_t*>(row + 8 * j) =
          tile::pack_pair<Bf16>(sums[j][2 * half] * factor, sums[j][2 * half + 1] * factor);
    }
  }
};

}  // namespace tessera::ladder::attention
