// Floats to codes and back on the device: ranges, scales, rounding, and the packing of nibbles.
// Every operation rounds as on the CPU, so that both give the same bits.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/elementwise/quantize_params.h"
#include "kernels/elementwise/row_vec.cuh"

namespace tessera::kernels {

// Codes in one element of storage.
template <class Code>
inline constexpr int kPacked = dtype_of<Code> == DType::i4 ? 2 : 1;

// N codes as they lie in memory.
template <class Code, int N>
using CodeVec = tile::Vec<Code, N / kPacked<Code>>;

// Where the codes of a row start. For i4 the offset is even.
template <class Code>
__device__ Code* code_at(void* codes, int64_t offset) {
  return static_cast<Code*>(codes) + offset / kPacked<Code>;
}
template <class Code>
__device__ const Code* code_at(const void* codes, int64_t offset) {
  return static_cast<const Code*>(codes) + offset / kPacked<Code>;
}

template <class Code, int N, bool kIsVectorized>
__device__ CodeVec<Code, N> load_codes(const Code* row, int v, int cols) {
  return load_row_vec<N / kPacked<Code>, kIsVectorized>(row, v, cols / kPacked<Code>);
}
template <class Code, int N, bool kIsVectorized>
__device__ void store_codes(const CodeVec<Code, N>& codes, Code* row, int v, int cols) {
  store_row_vec<kIsVectorized>(codes, row, v, cols / kPacked<Code>);
}

// The range of some values with 0 among them, as two numbers that are never negative, or the NaN
// 0x7fffffff that max.NaN gives once a value is NaN.
template <bool kHasZero>
struct ValueRange {
  float top = 0.0f;    // the greatest value; without a zero point the largest magnitude
  float depth = 0.0f;  // minus the least value; unused without a zero point

  __device__ void include(float value) {
    top = tile::Max::apply(top, kHasZero ? value : fabsf(value));
    if constexpr (kHasZero) depth = tile::Max::apply(depth, -value);
  }
  template <class T, int N>
  __device__ void include(const tile::Vec<T, N>& vec) {
    TESSERA_UNROLL
    for (int i = 0; i < N; ++i) include(tile::to_float(vec.values[i]));
  }
  __device__ void merge(const ValueRange& other) {
    top = tile::Max::apply(top, other.top);
    depth = tile::Max::apply(depth, other.depth);
  }
  // Over `num_lanes` neighbouring lanes, a power of two; every lane gets the result.
  __device__ void fold_lanes(int num_lanes) {
    for (int lane = num_lanes / 2; lane > 0; lane /= 2) {
      top = tile::Max::apply(top, __shfl_xor_sync(0xffffffffu, top, lane));
      if constexpr (kHasZero) {
        depth = tile::Max::apply(depth, __shfl_xor_sync(0xffffffffu, depth, lane));
      }
    }
  }
};

// Shared memory through which the warps of a block exchange ranges.
struct RangeParts {
  float top[tile::kMaxWarps];
  float depth[tile::kMaxWarps];
};

// Across the blockDim.x threads of a run; every thread gets the result.
template <bool kHasZero>
__device__ ValueRange<kHasZero> fold_run(ValueRange<kHasZero> range, RangeParts& parts) {
  const int num_threads = static_cast<int>(blockDim.x);
  range.fold_lanes(num_threads < tile::kWarpSize ? num_threads : tile::kWarpSize);
  if (num_threads <= tile::kWarpSize) return range;
  const int lane = static_cast<int>(threadIdx.x) % tile::kWarpSize;
  if (lane == 0) {
    parts.top[threadIdx.x / tile::kWarpSize] = range.top;
    parts.depth[threadIdx.x / tile::kWarpSize] = range.depth;
  }
  __syncthreads();
  range = {};
  if (lane < num_threads / tile::kWarpSize) range = {parts.top[lane], parts.depth[lane]};
  range.fold_lanes(tile::kWarpSize);
  return range;
}

struct Scale {
  float scale;
  int zero_point;
};

// PTX: add.sat. A sum beyond 32 bits stays at their end.
__device__ inline int add_saturated(int a, int b) {
  int sum;
  asm("add.sat.s32 %0, %1, %2;" : "=r"(sum) : "r"(a), "r"(b));
  return sum;
}

__device__ inline int clamp(int value, int low, int high) { return min(max(value, low), high); }

// How a type's codes are made. kHasZero: codes start at 0 and are shifted by a zero point.
template <class Code, bool kHasZero>
struct Coder {
  static constexpr DType kType = dtype_of<Code>;
  static constexpr float kSteps =
      kHasZero ? static_cast<float>(zero_point_max(kType)) : quant_max(kType);
  static constexpr bool kIsInteger = kType == DType::i8 || kType == DType::u8 || kType == DType::i4;

  // A scale that would be 0 is 1, and one that would be infinite is NaN, with a zero point of 0.
  __device__ static Scale find_scale(const ValueRange<kHasZero>& range) {
    const float width = kHasZero ? __fadd_rn(range.top, range.depth) : range.top;
    float scale = tile::nan_if_infinite(__fdiv_rn(width, kSteps));
    if (scale == 0.0f) scale = 1.0f;
    if constexpr (!kHasZero) return {scale, 0};
    const float zero = __fmul_rn(range.depth, __fdiv_rn(1.0f, scale));
    return {scale, clamp(__float2int_rn(zero), 0, zero_point_max(kType))};
  }

  // __float2int_rn rounds to nearest even, saturates, and gives 0 for NaN.
  __device__ static int integer_code(float scaled, int zero_point) {
    const int rounded = __float2int_rn(scaled);
    if constexpr (kHasZero) {
      return clamp(add_saturated(rounded, zero_point), 0, zero_point_max(kType));
    }
    constexpr int kLimit = static_cast<int>(quant_max(kType));
    return clamp(rounded, -kLimit, kLimit);
  }

  // `inverse(i)` is 1 / scale of element i, `zero_point(i)` its zero point.
  template <class T, int N, class Inverse, class ZeroPoint>
  __device__ static CodeVec<Code, N> encode(const tile::Vec<T, N>& x, const Inverse& inverse,
                                            const ZeroPoint& zero_point) {
    float scaled[N];
    x.to_floats(scaled);
    TESSERA_UNROLL
    for (int i = 0; i < N; ++i) scaled[i] = __fmul_rn(scaled[i], inverse(i));
    if constexpr (!kIsInteger) {
      TESSERA_UNROLL
      for (int i = 0; i < N; ++i) scaled[i] = tile::nan_if_infinite(scaled[i]);
      return CodeVec<Code, N>::from_floats(scaled);
    } else {
      CodeVec<Code, N> codes;
      TESSERA_UNROLL
      for (int i = 0; i < N; i += kPacked<Code>) {
        const int code = integer_code(scaled[i], zero_point(i));
        if constexpr (kPacked<Code> == 2) {
          const int high = integer_code(scaled[i + 1], zero_point(i + 1));
          codes.values[i / 2].bits = static_cast<uint8_t>((code & 0xf) | (high << 4));
        } else {
          codes.values[i] = static_cast<Code>(code);
        }
      }
      return codes;
    }
  }
  template <class T, int N>
  __device__ static CodeVec<Code, N> encode(const tile::Vec<T, N>& x, const Scale& scale) {
    const float inverse = __fdiv_rn(1.0f, scale.scale);
    return encode(
        x, [=](int) { return inverse; }, [&](int) { return scale.zero_point; });
  }
};

}  // namespace tessera::kernels
