// Reductions across a warp and across a block, in an order that never changes.
// SPDX-License-Identifier: MIT
#pragma once

#include "tile/unroll.cuh"

namespace tessera::tile {

inline constexpr int kWarpSize = 32;
inline constexpr int kMaxWarps = 32;  // per block

struct Sum {
  static constexpr float kIdentity = 0.0f;
  __device__ static float apply(float a, float b) { return a + b; }
};
// Max and Min propagate NaN, as the public reductions promise. PTX: min, max with .NaN (sm_80).
struct Max {
  static constexpr float kIdentity = -__builtin_huge_valf();
  __device__ static float apply(float a, float b) {
    float result;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
    return result;
  }
};
struct Min {
  static constexpr float kIdentity = __builtin_huge_valf();
  __device__ static float apply(float a, float b) {
    float result;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
    return result;
  }
};

// Every lane gets the result. kLanes neighbouring lanes, a power of two, are reduced.
template <class Op, int kLanes = kWarpSize>
__device__ inline float warp_reduce(float value) {
  TESSERA_UNROLL
  for (int lane = kLanes / 2; lane > 0; lane /= 2) {
    value = Op::apply(value, __shfl_xor_sync(0xffffffffu, value, lane));
  }
  return value;
}

// Every thread of the block gets the result, after one barrier: each warp stores its part, and each
// warp reduces all parts. blockDim.x is a multiple of 32. `parts` is shared memory of kMaxWarps
// floats that no other reduction uses until the block's next barrier.
template <class Op>
__device__ inline float block_reduce(float value, float* parts) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int num_warps = static_cast<int>(blockDim.x) / kWarpSize;
  value = warp_reduce<Op>(value);
  if (num_warps == 1) return value;
  if (lane == 0) parts[warp] = value;
  __syncthreads();
  return warp_reduce<Op>(lane < num_warps ? parts[lane] : Op::kIdentity);
}

}  // namespace tessera::tile
