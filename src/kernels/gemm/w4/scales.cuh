// Scales of packed 4-bit weights: f32, or bf16 or f16 where the checkpoint has them so.
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

// A launch has one type of scales, so branches on it do not diverge. Converting to float is exact:
// results have the same bits as with these scales in f32.
struct W4Scales {
  char* data;
  DType type;  // f32, bf16 or f16
  int shift;   // a scale has 1 << shift bytes

  // One scale in global memory.
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

// In shared memory the scales of 16 rows lie side by side. Such runs of 16 scales start kStride
// scales apart. A lane needs two scales of each run: those of rows lane / 4 and lane / 4 + 8.
//
// 16-bit scales of up to four runs come by one transposed ldmatrix, which reads an 8 x 8 matrix for
// each run. Its even rows are all the first half of the run, scales 0 to 7, and its odd rows the
// second half. A lane receives column lane / 4 of an even row and of the odd row below it, which
// are just the two scales that it needs.

// The lane's offset from the start of the first run.
template <int kStride>
__device__ __forceinline__ int lane_scales(const W4Scales& scales) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (scales.type == DType::f32) return lane / 4 * 4;
  return lane / 8 * (kStride * 2) + lane % 2 * 16;
}
// Loads a lane's scales of kRuns runs, from run `first` on. Two 16-bit scales remain one word, in
// pairs[i][0], until widen_scales converts them: a conversion here would wait for the load.
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
// Converts what load_scales has loaded to floats, and multiplies it by `factor`.
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
