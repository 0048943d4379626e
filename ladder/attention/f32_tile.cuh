// The tiles of step 03: 64 queries by 64 keys, f32 in shared memory and in registers.
// SPDX-License-Identifier: MIT
#pragma once

#include <cmath>

#include "ladder/attention/steps.h"
#include "tile/vec.cuh"

namespace tessera::ladder::attention {

// 16 x 16 threads. A thread computes scores of queries y + 16 i and keys x + 16 j, and sums of
// columns 4 x to 4 x + 3 and 64 + 4 x to 64 + 4 x + 3, so that neighbours in a warp read
// neighbouring words.
struct F32Tile {
  static constexpr int kSide = 64;  // queries, and keys
  static constexpr int kX = 16;
  static constexpr int kThreads = kX * kX;
  static constexpr int kRows = kSide / kX;     // queries a thread, and keys
  static constexpr int kCols = kHeadDim / kX;  // columns a thread

  // Padded so that one access of a warp (8 rows of 16 bytes, or two rows of 16 weights) falls into
  // different banks.
  struct Shared {
    float q[kSide][kHeadDim + 4];
    float kv[kSide][kHeadDim + 4];  // K, then V
    float weights[kSide][kSide + 16];
  };
  using Scores = float[kRows][kRows];
  using Sums = float[kRows][kCols];

  __device__ static int x() { return static_cast<int>(threadIdx.x) % kX; }
  __device__ static int y() { return static_cast<int>(threadIdx.x) / kX; }
  __device__ static float4 quad(const float* from) {
    return *reinterpret_cast<const float4*>(from);
  }

  // 64 rows of bf16, the first at `rows`, times `scale`.
  __device__ static void load(float (&to)[kSide][kHeadDim + 4], const Bf16* rows, int64_t stride,
                              float scale) {
    constexpr int kVec = 8;  // elements of 16 bytes
    constexpr int kVecsPerRow = kHeadDim / kVec;
    TESSERA_UNROLL
    for (int i = 0; i < kSide * kVecsPerRow / kThreads; ++i) {
      const int vec = static_cast<int>(threadIdx.x) + kThreads * i;
      const int row = vec / kVecsPerRow;
      const int col = vec % kVecsPerRow * kVec;
      float values[kVec];
      tile::Vec<Bf16, kVec>::load(rows + row * stride + col).to_floats(values);
      TESSERA_UNROLL
      for (int e = 0; e < kVec; e += 4) {
        *reinterpret_cast<float4*>(&to[row][col + e]) = {
            values[e] * scale, values[e + 1] * scale, values[e + 2] * scale, values[e + 3] * scale};
      }
    }
  }

  // Neither product is unrolled as a whole: two blocks on an SM leave 128 registers a thread, and
  // loads that far ahead would spill.
  __device__ static void multiply_qk(const Shared& shared, Scores& s) {
    for (int d = 0; d < kHeadDim; d += 4) {
      float4 q[kRows];
      float4 k[kRows];
      TESSERA_UNROLL
      for (int i = 0; i < kRows; ++i) q[i] = quad(&shared.q[y() + kX * i][d]);
      TESSERA_UNROLL
      for (int j = 0; j < kRows; ++j) k[j] = quad(&shared.kv[x() + kX * j][d]);
      TESSERA_UNROLL
      for (int i = 0; i < kRows; ++i) {
        TESSERA_UNROLL
        for (int j = 0; j < kRows; ++j) {
          s[i][j] += q[i].x * k[j].x;
          s[i][j] += q[i].y * k[j].y;
          s[i][j] += q[i].z * k[j].z;
          s[i][j] += q[i].w * k[j].w;
        }
      }
    }
  }

  // For the tile whose queries and keys are the same tokens.
  __device__ static void mask_above_diagonal(Scores& s) {
    TESSERA_UNROLL
    for (int i = 0; i < kRows; ++i) {
      TESSERA_UNROLL
      for (int j = 0; j < kRows; ++j) {
        if (x() + kX * j > y() + kX * i) s[i][j] = -INFINITY;
      }
    }
  }

  __device__ static void leave_weights(Shared& shared, const Scores& s) {
    TESSERA_UNROLL
    for (int i = 0; i < kRows; ++i) {
      TESSERA_UNROLL
      for (int j = 0; j < kRows; ++j) shared.weights[y() + kX * i][x() + kX * j] = s[i][j];
    }
  }

  __device__ static void multiply_pv(const Shared& shared, Sums& sums) {
    for (int key = 0; key < kSide; key += 4) {
      float weights[kRows][4];
      TESSERA_UNROLL
      for (int i = 0; i < kRows; ++i) {
        *reinterpret_cast<float4*>(weights[i]) = quad(&shared.weights[y() + kX * i][key]);
      }
      TESSERA_UNROLL
      for (int e = 0; e < 4; ++e) {
        float v[kCols];
        *reinterpret_cast<float4*>(v) = quad(&shared.kv[key + e][4 * x()]);
        *reinterpret_cast<float4*>(v + 4) = quad(&shared.kv[key + e][kHeadDim / 2 + 4 * x()]);
        TESSERA_UNROLL
        for (int i = 0; i < kRows; ++i) {
          TESSERA_UNROLL
          for (int c = 0; c < kCols; ++c) sums[i][c] += weights[i][e] * v[c];
        }
      }
    }
  }

  // Row `i` of this thread's, times `factor`; `rows` is the tile's first.
  __device__ static void store_row(Bf16* rows, int64_t stride, int i, const float (&row)[kCols],
                                   float factor) {
    TESSERA_UNROLL
    for (int half = 0; half < 2; ++half) {
      float part[4];
      TESSERA_UNROLL
      for (int c = 0; c < 4; ++c) part[c] = row[4 * half + c] * factor;
      tile::Vec<Bf16, 4>::from_floats(part).store(rows + (y() + kX * i) * stride +
                                                  kHeadDim / 2 * half + 4 * x());
    }
  }
};

}  // namespace tessera::ladder::attention
