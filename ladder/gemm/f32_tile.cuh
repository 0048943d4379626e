// The 128 x 128 tile of f32 that step 05 introduces and step 06 keeps.
// SPDX-License-Identifier: MIT
#pragma once

#include "ladder/gemm/steps.h"
#include "tile/unroll.cuh"

namespace tessera::ladder {

// A block of 8 warps, 4 along m and 2 along n. A warp computes 32 x 64 outputs, its lanes 4 along m
// and 8 along n; a thread computes 8 x 8 as four squares of 4 x 4, 16 rows and 32 columns apart, so
// that each 16-byte load of a warp covers neighbouring words.
struct F32Tile {
  static constexpr int kTile = 128;  // of m and of n
  static constexpr int kTileK = 16;
  static constexpr int kThreads = 256;
  static constexpr int kSquare = 4;
  static constexpr int kRowPitch = 16;
  static constexpr int kColPitch = 32;
  static constexpr int kPad = 4;  // the 2 k and 16 rows of a warp's store meet 32 banks

  // One operand's part of a stage, with k as rows.
  struct Panel {
    alignas(16) float at[kTileK][kTile + kPad];
  };
  struct Stage {
    Panel a;
    Panel b;
  };
  // What a thread carries of one operand from global to shared memory: of row threadIdx.x / 2,
  // two groups of four k.
  struct Carried {
    float4 quads[2];
  };

  // `data` is [rows, num_k] from the tile's first row on, at the tile's first k.
  __device__ static Carried fetch(const float* data, int num_k) {
    const int row = static_cast<int>(threadIdx.x) / 2;
    const int quad = static_cast<int>(threadIdx.x) % 2;
    const float* from = data + static_cast<int64_t>(row) * num_k + 4 * quad;
    return {*reinterpret_cast<const float4*>(from), *reinterpret_cast<const float4*>(from + 8)};
  }

  __device__ static void put(Panel& panel, const Carried& carried) {
    const int row = static_cast<int>(threadIdx.x) / 2;
    const int quad = static_cast<int>(threadIdx.x) % 2;
    TESSERA_UNROLL
    for (int i = 0; i < 2; ++i) {
      const float4 value = carried.quads[i];
      const int k = 4 * quad + 8 * i;
      panel.at[k][row] = value.x;
      panel.at[k + 1][row] = value.y;
      panel.at[k + 2][row] = value.z;
      panel.at[k + 3][row] = value.w;
    }
  }

  // The first of this thread's rows and columns in the tile.
  __device__ static int row() {
    const int thread = static_cast<int>(threadIdx.x);
    return 32 * (thread / 64) + 4 * (thread % 32 / 8);
  }
  __device__ static int col() {
    const int thread = static_cast<int>(threadIdx.x);
    return 64 * (thread / 32 % 2) + 4 * (thread % 8);
  }

  // A thread's eight values of one k: two loads of 16 bytes.
  __device__ static void load(float (&values)[8], const float* from, int pitch) {
    TESSERA_UNROLL
    for (int i = 0; i < 2; ++i) {
      const float4 quad = *reinterpret_cast<const float4*>(from + pitch * i);
      values[4 * i] = quad.x;
      values[4 * i + 1] = quad.y;
      values[4 * i + 2] = quad.z;
      values[4 * i + 3] = quad.w;
    }
  }

  __device__ static void multiply(const Stage& stage, float (&sums)[8][8]) {
    TESSERA_UNROLL
    for (int k = 0; k < kTileK; ++k) {
      float a[8];
      float b[8];
      load(a, stage.a.at[k] + row(), kRowPitch);
      load(b, stage.b.at[k] + col(), kColPitch);
      TESSERA_UNROLL
      for (int i = 0; i < 8; ++i) {
        TESSERA_UNROLL
        for (int j = 0; j < 8; ++j) sums[i][j] += a[i] * b[j];
      }
    }
  }

  // `d` is [rows, n] at the tile's first element.
  __device__ static void store(const float (&sums)[8][8], float* d, int n) {
    TESSERA_UNROLL
    for (int i = 0; i < 8; ++i) {
      const int r = row() + kRowPitch * (i / kSquare) + i % kSquare;
      TESSERA_UNROLL
      for (int j = 0; j < 2; ++j) {
        float* to = d + static_cast<int64_t>(r) * n + col() + kColPitch * j;
        *reinterpret_cast<float4*>(to) =
            make_float4(sums[i][4 * j], sums[i][4 * j + 1], sums[i][4 * j + 2], sums[i][4 * j + 3]);
      }
    }
  }
};

}  // namespace tessera::ladder
