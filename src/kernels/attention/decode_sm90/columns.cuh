// Scores of keys that share scales by column, and of the newest 32 keys, which lie in 16 bits in a
// tail until their columns have scales.
// SPDX-License-Identifier: MIT
#pragma once

#include <cuda_fp16.h>

#include "kernels/attention/decode_sm90/products.cuh"
#include "kernels/attention/decode_sm90/tile.cuh"
#include "tile/ptx/shared.cuh"

namespace tessera::kernels {

// Two halves times two.
__device__ __forceinline__ uint32_t multiply_halves(uint32_t x, uint32_t y) {
  const __half2 product =
      __hmul2(*reinterpret_cast<const __half2*>(&x), *reinterpret_cast<const __half2*>(&y));
  return *reinterpret_cast<const uint32_t*>(&product);
}

// Scale and low of eight columns in a row, as multiply_columns needs them: pairs are 4 apart.
struct ColumnScales {
  uint32_t scale[4], low[4];

  __device__ __forceinline__ void load(uint32_t address) {
    const float4 front = tile::ptx::load_shared_v4(address);
    const float4 back = tile::ptx::load_shared_v4(address + 16);
    take(0, front.x, back.x);
    take(1, front.y, back.y);
    take(2, front.z, back.z);
    take(3, front.w, back.w);
  }

 private:
  __device__ __forceinline__ void take(int j, float column, float fourth_after) {
    const uint32_t x = __float_as_uint(column), y = __float_as_uint(fourth_after);
    scale[j] = __byte_perm(x, y, 0x5410);
    low[j] = __byte_perm(x, y, 0x7632);
    // The odd codes of a word are worth 16 times the even ones.
    if (j % 2 != 0) scale[j] = multiply_halves(scale[j], 0x2c002c00u);
  }
};

// A score is the sum over columns of q * (code * scale + low): scales are multiplied with the
// queries, once for all 32 keys, and lows are one more key, which every row of a product holds.
template <class Tile>
__device__ __forceinline__ void multiply_columns(uint32_t half, uint32_t scales, int lane,
                                                 const QueryOperands<Tile>& q,
                                                 StepScores<Tile>& scores) {
  using K = typename Tile::K;
  constexpr int kTiles = Tile::kTiles;
  const uint32_t lane_place = place<Tile>(lane % 16, lane / 16);
  float parts[2][kTiles][4] = {}, lows[kTiles][4] = {};
  ColumnScales columns;
  TESSERA_UNROLL
  for (int group = 0; group < Tile::kD / 64; ++group) {
    uint32_t r[2][4];
    TESSERA_UNROLL
    for (int box = 0; box < 2; ++box) {
      tile::ptx::ldmatrix(r[box], place_of_group<Tile>(half, lane_place, box, group));
    }
    TESSERA_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int step = 4 * group + i, j = 2 * (i % 2);
      // A lane's eight columns serve two steps.
      if (j == 0) columns.load(scales + 4 * (16 * step + 8 * (lane % 4)));
      const Operand low{columns.low[j], columns.low[j], columns.low[j + 1], columns.low[j + 1]};
      TESSERA_UNROLL
      for (int t = 0; t < kTiles; ++t) {
        tile::ptx::mma<F16>(lows[t], low, q[t][step]);
        const uint32_t scaled[2] = {multiply_halves(q[t][step][0], columns.scale[j]),
                                    multiply_halves(q[t][step][1], columns.scale[j + 1])};
        TESSERA_UNROLL
        for (int box = 0; box < 2; ++box) {
          Operand a;
          K::key_operand(r[box], i, a);
          tile::ptx::mma<F16>(parts[box][t], a, scaled);
        }
      }
    }
  }
  TESSERA_UNROLL
  for (int box = 0; box < 2; ++box) {
    TESSERA_UNROLL
    for (int t = 0; t < kTiles; ++t) {
      TESSERA_UNROLL
      for (int i = 0; i < 4; ++i) {
        scores[box][t][i] = fmaf(parts[box][t][i], kSubnormalUnit, lows[t][i]);
      }
    }
  }
}

// 32 keys of type Q, in rows Tile::kTailPitch apart. `queries[t]` is where a lane's query begins.
template <class Q, class Tile>
__device__ __forceinline__ void multiply_tail(uint32_t tail, int lane,
                                              const Q* const (&queries)[Tile::kTiles],
                                              StepScores<Tile>& scores) {
  constexpr int kTiles = Tile::kTiles;
  TESSERA_UNROLL
  for (int box = 0; box < 2; ++box) {
    TESSERA_UNROLL
    for (int t = 0; t < kTiles; ++t) {
      TESSERA_UNROLL
      for (int i = 0; i < 4; ++i) scores[box][t][i] = 0;
    }
  }
  const uint32_t rows = tail + lane % 16 * Tile::kTailPitch + 16 * (lane / 16);
#pragma unroll 2
  for (int step = 0; step < Tile::kD / 16; ++step) {
    uint32_t q[kTiles][2];
    TESSERA_UNROLL
    for (int t = 0; t < kTiles; ++t) {
      TESSERA_UNROLL
      for (int reg = 0; reg < 2; ++reg) {
        const Q* from = queries[t] + 16 * step + 8 * reg + 2 * (lane % 4);
        q[t][reg] = *reinterpret_cast<const uint32_t*>(from);
      }
    }
    TESSERA_UNROLL
    for (int box = 0; box < 2; ++box) {
      uint32_t r[4];
      tile::ptx::ldmatrix(r, rows + box * kBoxKeys * Tile::kTailPitch + 32 * step);
      TESSERA_UNROLL
      for (int t = 0; t < kTiles; ++t) tile::ptx::mma<Q>(scores[box][t], r, q[t]);
    }
  }
}

}  // namespace tessera::kernels
