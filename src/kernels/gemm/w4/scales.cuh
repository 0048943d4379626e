// Scales of packed 4-bit weights: of 32 bits, or of 16 as a checkpoint has them.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "tessera/core/dtype.h"
#include "tessera/core/tensor.h"
#include "tile/convert.cuh"
#include "tile/ptx/ldmatrix.cuh"
#include "tile/ptx/shared.cuh"
#include "tile/unroll.cuh"

namespace tessera::kernels {

// The type is the same for a whole launch, so a branch on it is uniform. Widening to float is
// exact: the results are those of the same scales in f32, bit for bit.
struct W4Scales {
  char* data;
  DType type;  // f32, bf16 or f16
  int shift;   // a scale has 1 << shift bytes

  // One of them, in global memory.
  __device__ float at(int64_t index) const {
    if (type == DType::bf16) return tile::to_float(reinterpret_cast<const Bf16*>(data)[index]);
    if (type == DType::f16) return tile::to_float(reinterpret_cast<const F16*>(data)[index]);
    return reinterpret_cast<const float*>(data)[index];
  }
  __device__ void set(int64_t index, float value) const {
    if (type == DType::bf16) {
      reinterpret_cast<Bf16*>(data)[index] = tile::from_float<Bf16>(value);
    } else if (type == DType::f16) {
      reinterpret_cast<F16*>(data)[index] = tile::from_float<F16>(value);
    } else {
      reinterpret_cast<float*>(data)[index] = value;
    }
  }
};
inline W4Scales w4_scales(const TensorView& scale) {
  return {static_cast<char*>(scale.data), scale.dtype, scale.dtype == DType::f32 ? 2 : 1};
}

// Runs of 16 scales in shared memory, one every kStride scales, of which a lane needs those of rows
// lane / 4 and lane / 4 + 8. Of 16-bit scales one instruction brings them for several runs: a run
// is a tile of 8 x 8 whose rows are its two halves in turn, so that a lane gets an element of each
// half from the transposed tile.
//
// Where a lane reads, behind the first run.
template <int kStride>
__device__ __forceinline__ int lane_scales(const W4Scales& scales) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (scales.type == DType::f32) return lane / 4 * 4;
  return lane / 8 * (kStride * 2) + lane % 2 * 16;
}
// kRuns runs, from run `first` on. They are bits until widen_scales makes floats of them, so that
// nothing waits for them here.
template <int kStride, int kRuns>
__device__ __forceinline__ void load_scales(const W4Scales& scales, uint32_t mine, int first,
                                            float (&pairs)[kRuns][2]) {
  if (scales.type == DType::f32) {
    TESSERA_UNROLL
    for (int i = 0; i < 2 * kRuns; ++i) {
      pairs[i / 2][i % 2] = __uint_as_float(
          tile::ptx::load_shared(mine + (first + i / 2) * (kStride * 4) + i % 2 * 32));
    }
  } else {
    uint32_t words[kRuns];
    tile::ptx::ldmatrix_trans(words, mine + first * (kStride * 2));
    TESSERA_UNROLL
    for (int i = 0; i < kRuns; ++i) {
      pairs[i][0] = __uint_as_float(words[i]);
      asm volatile("" : "=f"(pairs[i][1]));  // unset, without an instruction
    }
  }
}
// To floats, times `factor`.
template <int kRuns>
__device__ __forceinline__ void widen_scales(const W4Scales& scales, float factor,
                                             float (&pairs)[kRuns][2]) {
  const auto widen = [&](auto to_floats) {
    TESSERA_UNROLL
    for (int i = 0; i < kRuns; ++i) {
      const float2 pair = to_floats(__float_as_uint(pairs[i][0]));
      pairs[i][0] = pair.x;
      pairs[i][1] = pair.y;
    }
  };
  if (scales.type == DType::bf16) {
    widen([](uint32_t word) { return tile::pair_to_floats<Bf16>(word); });
  } else if (scales.type == DType::f16) {
    widen([](uint32_t word) { return tile::pair_to_floats<F16>(word); });
  }
  TESSERA_UNROLL
  for (int i = 0; i < 2 * kRuns; ++i) pairs[i / 2][i % 2] *= factor;
}

}  // namespace tessera::kernels
