// What the VNNI tiles of a 4-bit weight share: rows of a as integers, scales and folds.
// SPDX-License-Identifier: MIT
//
// For x86-64 alone, compiled for AVX-512 VNNI: callers check that the CPU has it.
#pragma once

#include <immintrin.h>

#include <algorithm>

#include "cpu/gemm_kernel.h"
#include "tessera/core/convert.h"

#define TESSERA_VNNI __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")))
#define TESSERA_INLINE inline __attribute__((always_inline))

namespace tessera::cpu {
namespace {

constexpr int kCols = 4;
constexpr int64_t kBlock = kGemmVnniBlock;  // elements of k
constexpr int kLanes = 16;                  // of 8 elements each
constexpr int kBits = 22;  // below the leading one of the largest of eight elements

// Eight neighbouring elements of a row of a, which share a lane, as integers of 24 bits times what
// 1 stands for, a power of two: values[s] has element s of each lane.
struct LaneIntegers {
  __m512i values[8];
  __m512 unit;
};

// Eight neighbours a lane, from 128 floats: element s of each lane in out[s]. First four lanes and
// four elements at a time from two vectors, then their quarters change places.
TESSERA_VNNI TESSERA_INLINE void load_lanes(const float* floats, __m512 (&out)[8]) {
  const __m512i lower = _mm512_set_epi32(27, 19, 11, 3, 26, 18, 10, 2, 25, 17, 9, 1, 24, 16, 8, 0);
  for (int half = 0; half < 2; ++half) {
    const __m512i places = _mm512_add_epi32(lower, _mm512_set1_epi32(4 * half));
    __m512 part[4];
    for (int i = 0; i < 4; ++i) {
      part[i] = _mm512_permutex2var_ps(_mm512_load_ps(floats + 32 * i), places,
                                       _mm512_load_ps(floats + 32 * i + 16));
    }
    const __m512 a = _mm512_shuffle_f32x4(part[0], part[1], 0x44);
    const __m512 b = _mm512_shuffle_f32x4(part[2], part[3], 0x44);
    const __m512 c = _mm512_shuffle_f32x4(part[0], part[1], 0xee);
    const __m512 d = _mm512_shuffle_f32x4(part[2], part[3], 0xee);
    out[4 * half] = _mm512_shuffle_f32x4(a, b, 0x88);
    out[4 * half + 1] = _mm512_shuffle_f32x4(a, b, 0xdd);
    out[4 * half + 2] = _mm512_shuffle_f32x4(c, d, 0x88);
    out[4 * half + 3] = _mm512_shuffle_f32x4(c, d, 0xdd);
  }
}

// From the 128 floats of a block.
TESSERA_VNNI TESSERA_INLINE void make_integers(const float* floats, LaneIntegers& made) {
  __m512 values[8];
  load_lanes(floats, values);
  __m512 largest = _mm512_setzero_ps();
  for (const __m512 value : values) largest = _mm512_max_ps(largest, _mm512_abs_ps(value));
  // The leading bytes hold -128 to 127, so the largest integer is 127.5 * 65536, not 2^23: where
  // the largest value would pass it, the unit is the next power of two.
  const __m512 room = _mm512_mul_ps(largest, _mm512_set1_ps(1.004f));
  const __m512 exponent = _mm512_sub_ps(
      _mm512_max_ps(_mm512_getexp_ps(room), _mm512_set1_ps(-100.0f)), _mm512_set1_ps(kBits));
  const __m512 one = _mm512_set1_ps(1.0f);
  const __m512 inverse = _mm512_scalef_ps(one, _mm512_sub_ps(_mm512_setzero_ps(), exponent));
  for (int s = 0; s < 8; ++s) {
    made.values[s] = _mm512_cvtps_epi32(_mm512_mul_ps(values[s], inverse));
  }
  made.unit = _mm512_scalef_ps(one, exponent);
}

// Rows of a as blocks, each made by make_block(floats, block).
template <class Block, class T>
TESSERA_VNNI void widen_as(const GemmParams& p, GemmRange rows) {
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const T* from = static_cast<const T*>(p.a) + row * p.a_stride;
    auto* to = reinterpret_cast<Block*>(p.a_floats + row * p.floats_stride);
    for (int64_t first = 0; first < p.k; first += kBlock, ++to) {
      alignas(64) float floats[kBlock];
      const int64_t count = std::min(kBlock, p.k - first);
      for (int64_t i = 0; i < count; ++i) floats[i] = to_float(from[first + i]);
      std::fill(floats + count, floats + kBlock, 0.0f);
      make_block(floats, *to);
    }
  }
}

// Which of a row's groups the lanes of a block are in, where a block has several: `lanes` counts
// from group `first`, from which on `mask` values exist.
struct LaneGroups {
  __m512i lanes;
  __mmask16 mask;
  int64_t first;

  TESSERA_VNNI LaneGroups(const GemmParams& p, int64_t column) : first(column / p.segment) {
    alignas(64) int32_t groups[kLanes];
    for (int i = 0; i < kLanes; ++i) {
      const int64_t group = std::min((column + 8 * i) / p.segment, p.num_segments - 1);
      groups[i] = static_cast<int32_t>(group - first);
    }
    lanes = _mm512_load_si512(groups);
    mask = static_cast<__mmask16>((1u << std::min<int64_t>(kLanes, p.num_segments - first)) - 1);
  }
  TESSERA_VNNI TESSERA_INLINE __m512 at(const float* values) const {
    return _mm512_permutexvar_ps(lanes, _mm512_maskz_loadu_ps(mask, values + first));
  }
  TESSERA_VNNI TESSERA_INLINE __m512i at(const uint8_t* values) const {
    const __m128i bytes = _mm_maskz_loadu_epi8(mask, values + first);
    return _mm512_permutexvar_epi32(lanes, _mm512_cvtepu8_epi32(bytes));
  }
};

// The same where all lanes of a block are in one group.
struct OneGroup {
  int64_t first;

  TESSERA_VNNI TESSERA_INLINE __m512 at(const float* values) const {
    return _mm512_set1_ps(values[first]);
  }
  TESSERA_VNNI TESSERA_INLINE __m512i at(const uint8_t* values) const {
    return _mm512_set1_epi32(values[first]);
  }
};

// Some rows of b, at a column of out.
struct WeightRows {
  const uint8_t* codes;
  const float* scale;
  const uint8_t* zero;  // null: none
  int64_t stride;       // bytes from one row of codes to the next
  int64_t num_groups;   // the same of scales and zero points

  WeightRows(const GemmParams& p, int64_t col)
      : codes(static_cast<const uint8_t*>(p.b) + col * p.b_stride / 2),
        scale(p.b_scale + col * p.num_segments),
        zero(p.b_zero_codes == nullptr ? nullptr : p.b_zero_codes + col * p.num_segments),
        stride(p.b_stride / 2),
        num_groups(p.num_segments) {}
};

// The sums of the lanes of four vectors, each by the same tree: within quarters (0 + 2) + (1 + 3),
// then the quarters, halves onto each other.
TESSERA_VNNI TESSERA_INLINE __m128 fold_four(__m512 v0, __m512 v1, __m512 v2, __m512 v3) {
  const __m512 v01 = _mm512_add_ps(_mm512_unpacklo_ps(v0, v1), _mm512_unpackhi_ps(v0, v1));
  const __m512 v23 = _mm512_add_ps(_mm512_unpacklo_ps(v2, v3), _mm512_unpackhi_ps(v2, v3));
  const __m512 all = _mm512_add_ps(_mm512_shuffle_ps(v01, v23, _MM_SHUFFLE(1, 0, 1, 0)),
                                   _mm512_shuffle_ps(v01, v23, _MM_SHUFFLE(3, 2, 3, 2)));
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(all), _mm512_extractf32x8_ps(all, 1));
  return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

inline float bias_at(const GemmParams& p, int64_t col) {
  return p.a_type == DType::bf16 ? to_float(static_cast<const Bf16*>(p.bias)[col])
                                 : to_float(static_cast<const F16*>(p.bias)[col]);
}

}  // namespace
}  // namespace tessera::cpu

#undef TESSERA_INLINE
#undef TESSERA_VNNI
