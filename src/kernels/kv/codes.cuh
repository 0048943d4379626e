// Scales and codes of a KV cache on the device, in every format. Every operation rounds as on the
// CPU, so that both give the same bits.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/kv/params.h"
#include "tile/reduce.cuh"
#include "tile/vec.cuh"

namespace tessera::kernels::kv {

// An element is code * scale + low.
struct KvScale {
  float scale = 1.0f;
  float low = 0.0f;
};

// The smallest and the largest of some values. Both are NaN if any value is.
struct KvRange {
  float low = __builtin_huge_valf();
  float high = -__builtin_huge_valf();

  __device__ void include(float value) {
    low = tile::Min::apply(low, value);
    high = tile::Max::apply(high, value);
  }
  // Over 2^log_lanes neighbouring lanes; called by every lane of the warp.
  __device__ void fold(int log_lanes) {
    for (int lane = (1 << log_lanes) / 2; lane > 0; lane /= 2) {
      low = tile::Min::apply(low, __shfl_xor_sync(0xffffffffu, low, lane));
      high = tile::Max::apply(high, __shfl_xor_sync(0xffffffffu, high, lane));
    }
  }
};

inline constexpr float kLargestF16 = 65504.0f;

__device__ inline float round_to_f16(float value) {
  return tile::to_float(tile::from_float<F16>(value));
}
// A scale rounded to f16, as a float: finite and never 0.
__device__ inline float stored_scale(float scale) {
  const float rounded = round_to_f16(fminf(scale, kLargestF16));
  return rounded > 0.0f ? rounded : 1.0f;
}
// Adding 0 turns -0 into 0, so that the order of equal zeros does not matter.
__device__ inline float stored_low(float low) {
  return __fadd_rn(round_to_f16(fminf(fmaxf(low, -kLargestF16), kLargestF16)), 0.0f);
}

// The scale of a row, or of a column of 32 rows, for codes of the given type. If a value is not
// finite, scale and low are NaN: codes cannot express it, so everything read back is NaN rather
// than plausible numbers.
__device__ inline KvScale find_scale(KvRange range, DType codes) {
  if (range.low > range.high) range = {0.0f, 0.0f};  // no values
  const float taint = __fmaf_rn(range.low, 0.0f, __fmul_rn(range.high, 0.0f));
  if (taint != taint) return {taint, taint};
  if (codes == DType::i8) {
    return {stored_scale(__fdiv_rn(fmaxf(range.high, -range.low), quant_max(DType::i8))), 0.0f};
  }
  const float low = stored_low(range.low);
  const float steps = codes == DType::u8 ? 255.0f : 15.0f;
  return {stored_scale(__fdiv_rn(__fsub_rn(range.high, low), steps)), low};
}

__device__ inline F16* row_scale_at(const KvPool& pool, int64_t page, int64_t row, int64_t head) {
  return static_cast<F16*>(pool.scales) + pool.scale_element(page, row, head);
}
// Exact: find_scale has rounded both to f16 already.
__device__ inline void store_scale(F16* at, const KvScale& scale, bool has_low) {
  at[0] = tile::from_float<F16>(scale.scale);
  if (has_low) at[1] = tile::from_float<F16>(scale.low);
}
__device__ inline KvScale load_scale(const F16* at, bool has_low) {
  return {tile::to_float(at[0]), has_low ? tile::to_float(at[1]) : 0.0f};
}
__device__ inline float head_scale(const KvPool& pool, int64_t head) {
  if (pool.scales == nullptr) return 1.0f;
  return static_cast<const float*>(pool.scales)[pool.scale_element(0, 0, head)];
}

// __float2int_rn rounds to nearest even, saturates, and gives 0 for NaN.
__device__ inline int signed_code(float x, const KvScale& s) {
  return min(max(__float2int_rn(__fdiv_rn(x, s.scale)), -127), 127);
}
__device__ inline int unsigned_code(float x, const KvScale& s, int highest) {
  return min(max(__float2int_rn(__fdiv_rn(__fsub_rn(x, s.low), s.scale)), 0), highest);
}

// The address of the codes `offset` elements after a pool's first; `offset` is even for i4.
template <class Code>
__device__ Code* codes_at(void* data, int64_t offset) {
  return static_cast<Code*>(data) + (dtype_of<Code> == DType::i4 ? offset / 2 : offset);
}

// kKvVec elements at once, or the first `count` of them one by one.
template <bool kIsVectorized, class T, int N>
__device__ void store_elements(const tile::Vec<T, N>& vec, T* to, int count) {
  if constexpr (kIsVectorized) {
    vec.store(to);
  } else {
    vec.store_part(to, count);
  }
}
template <bool kIsVectorized, int N, class T>
__device__ tile::Vec<T, N> load_elements(const T* from, int count) {
  if constexpr (kIsVectorized) {
    return tile::Vec<T, N>::load(from);
  } else {
    return tile::Vec<T, N>::load_part(from, count);
  }
}

// FP8 codes of x / scale; values that are not finite become NaN.
template <class Code, bool kIsVectorized>
__device__ void store_fp8(const float (&x)[kKvVec], const KvScale& s, Code* to, int count) {
  float scaled[kKvVec];
  TESSERA_UNROLL
  for (int i = 0; i < kKvVec; ++i) {
    scaled[i] = tile::nan_if_infinite(__fdiv_rn(x[i], s.scale));
  }
  store_elements<kIsVectorized>(tile::Vec<Code, kKvVec>::from_floats(scaled), to, count);
}

// Two codes per byte. If a row ends within a byte, the other half is left unchanged.
template <bool kIsVectorized>
__device__ void store_nibbles(const float (&x)[kKvVec], const KvScale& s, I4x2* to, int count) {
  tile::Vec<I4x2, kKvVec / 2> codes;
  TESSERA_UNROLL
  for (int i = 0; i < kKvVec; i += 2) {
    const int pair = unsigned_code(x[i], s, 15) | unsigned_code(x[i + 1], s, 15) << 4;
    codes.values[i / 2].bits = static_cast<uint8_t>(pair);
  }
  store_elements<kIsVectorized>(codes, to, count / 2);
  if constexpr (!kIsVectorized) {
    TESSERA_UNROLL
    for (int i = 0; i < kKvVec; i += 2) {  // a constant index keeps x in registers
      if (i + 1 != count) continue;
      const int other = to[i / 2].bits & 0xf0;
      to[i / 2].bits = static_cast<uint8_t>(other | (codes.values[i / 2].bits & 15));
    }
  }
}

// Stores elements of a row, `offset` elements after the pool's first: `bits` for plain pages,
// otherwise the codes of their values `x`. Keys with scales by column are stored elsewhere.
template <bool kIsVectorized, class T>
__device__ void store_codes(const KvPool& pool, int64_t offset, const tile::Vec<T, kKvVec>& bits,
                            const float (&x)[kKvVec], const KvScale& s, int count) {
  using tile::Vec;
  switch (pool.dtype) {
    case DType::e4m3:
      store_fp8<E4m3, kIsVectorized>(x, s, codes_at<E4m3>(pool.data, offset), count);
      break;
    case DType::e5m2:
      store_fp8<E5m2, kIsVectorized>(x, s, codes_at<E5m2>(pool.data, offset), count);
      break;
    case DType::i8: {
      Vec<int8_t, kKvVec> codes;
      TESSERA_UNROLL
      for (int i = 0; i < kKvVec; ++i) codes.values[i] = static_cast<int8_t>(signed_code(x[i], s));
      store_elements<kIsVectorized>(codes, codes_at<int8_t>(pool.data, offset), count);
      break;
    }
    case DType::u8: {
      Vec<uint8_t, kKvVec> codes;
      TESSERA_UNROLL
      for (int i = 0; i < kKvVec; ++i) {
        codes.values[i] = static_cast<uint8_t>(unsigned_code(x[i], s, 255));
      }
      store_elements<kIsVectorized>(codes, codes_at<uint8_t>(pool.data, offset), count);
      break;
    }
    case DType::i4:
      store_nibbles<kIsVectorized>(x, s, codes_at<I4x2>(pool.data, offset), count);
      break;
    default: store_elements<kIsVectorized>(bits, codes_at<T>(pool.data, offset), count); break;
  }
}

template <class Code, bool kIsVectorized>
__device__ void load_values(void* data, int64_t offset, int count, float (&x)[kKvVec]) {
  load_elements<kIsVectorized, kKvVec, Code>(codes_at<Code>(data, offset), count).to_floats(x);
}

// Loads elements of a row, `offset` elements after a pool's first: codes as numbers, unscaled.
template <bool kIsVectorized>
__device__ void load_codes(void* data, DType dtype, int64_t offset, int count, float (&x)[kKvVec]) {
  switch (dtype) {
    case DType::f32: load_values<float, kIsVectorized>(data, offset, count, x); break;
    case DType::f16: load_values<F16, kIsVectorized>(data, offset, count, x); break;
    case DType::bf16: load_values<Bf16, kIsVectorized>(data, offset, count, x); break;
    case DType::e4m3: load_values<E4m3, kIsVectorized>(data, offset, count, x); break;
    case DType::e5m2: load_values<E5m2, kIsVectorized>(data, offset, count, x); break;
    case DType::i8: load_values<int8_t, kIsVectorized>(data, offset, count, x); break;
    case DType::u8: load_values<uint8_t, kIsVectorized>(data, offset, count, x); break;
    default: {
      const auto codes = load_elements<kIsVectorized, kKvVec / 2, I4x2>(
          codes_at<I4x2>(data, offset), (count + 1) / 2);
      TESSERA_UNROLL
      for (int i = 0; i < kKvVec; ++i) {
        x[i] = static_cast<float>(codes.values[i / 2].bits >> (i % 2 * 4) & 15);
      }
    }
  }
}

}  // namespace tessera::kernels::kv
