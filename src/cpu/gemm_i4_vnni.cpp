// The matrix product of 16-bit values with a 4-bit weight by AVX-512 VNNI, codes read as they lie.
// SPDX-License-Identifier: MIT
//
//   out[i, j] = sum over groups of (sum over k of a[i, k] * (code[j, k] - zero)) * scale, plus bias
//
// Work      Eight neighbouring elements of a row of a become integers of 24 bits with a common
//           power of two: x = 65536 h + 256 m + l, with h, m and l of 8 bits. A block of k is 128
//           codes, 64 bytes of b: low and high nibbles are multiplied with h, m and l of the even
//           and the odd elements, and lane i of 16 holds the exact sum of its 8 products. A tile is
//           up to 4 rows of a against 4 rows of b.
// Output    A lane's integer, less zero * sum of x, is rounded to float and added times the scale
//           by one multiply-add; at the end the lanes are folded by one tree. Neither the tile nor
//           the place in it enters, so a row of out has the same bits for every m. An element loses
//           less than 2^-23 of the largest among its eight: bf16 is exact down to 2^-15 of it.
// Cost      With one row of a: 6 VNNI products, 3 others of their pipes and 8 simple operations for
//           128 codes, which a Zen 4 core does in 10 cycles.
// Needs     a finite; segments of a multiple of 8, or one segment; zero points of 0 to 15.
#include <algorithm>

#include "cpu/gemm_kernel.h"

#if defined(__x86_64__)
#include "cpu/gemm_vnni_tile.h"

#define TESSERA_VNNI __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")))
#define TESSERA_INLINE inline __attribute__((always_inline))

namespace tessera::cpu {
namespace {

// One block of a row of a: what dpbusd multiplies, and what a lane's elements share.
struct alignas(64) InputBlock {
  int8_t high[2][64], middle[2][64], low[2][64];  // of even elements, then of odd ones
  int32_t sum[kLanes];                            // of the integers
  float unit[kLanes];                             // what 1 stands for
};
static_assert(sizeof(InputBlock) == kGemmVnniBlockFloats * sizeof(float));

TESSERA_VNNI void make_block(const float* floats, InputBlock& block) {
  LaneIntegers x;
  make_integers(floats, x);
  const __m512i byte = _mm512_set1_epi32(255), half = _mm512_set1_epi32(128);
  __m512i sum = _mm512_setzero_si512();
  __m512i planes[3][2] = {};
  for (int s = 0; s < 8; ++s) {
    const __m512i low = x.values[s];
    const __m512i middle = _mm512_srai_epi32(_mm512_add_epi32(low, half), 8);
    const __m512i high = _mm512_srai_epi32(_mm512_add_epi32(middle, half), 8);
    sum = _mm512_add_epi32(sum, low);
    const __m128i shift = _mm_cvtsi32_si128(8 * (s / 2));
    const __m512i parts[3] = {high, middle, low};
    for (int i = 0; i < 3; ++i) {
      const __m512i part = _mm512_sll_epi32(_mm512_and_si512(parts[i], byte), shift);
      planes[i][s % 2] = _mm512_or_si512(planes[i][s % 2], part);
    }
  }
  for (int odd = 0; odd < 2; ++odd) {
    _mm512_store_si512(block.high[odd], planes[0][odd]);
    _mm512_store_si512(block.middle[odd], planes[1][odd]);
    _mm512_store_si512(block.low[odd], planes[2][odd]);
  }
  _mm512_store_si512(block.sum, sum);
  _mm512_store_ps(block.unit, x.unit);
}

// What a block of one row of b is multiplied as.
struct Nibbles {
  __m512i even, odd, zero;
  __m512 scale;
};

// `valid`: the bytes of the block that exist.
template <bool kHasZeros, bool kIsWhole, class Groups>
TESSERA_VNNI TESSERA_INLINE Nibbles load_nibbles(const WeightRows& b, int64_t row, int64_t block,
                                                 __mmask64 valid, const Groups& groups) {
  const __m512i nibble = _mm512_set1_epi8(15), flip = _mm512_set1_epi8(static_cast<char>(0x88));
  const uint8_t* from = b.codes + row * b.stride + block * (kBlock / 2);
  __m512i words;
  if constexpr (kIsWhole) {
    words = _mm512_loadu_si512(from);
    // The same place of the tile after next: rows are too short for the hardware to predict.
    _mm_prefetch(from + 2 * kCols * b.stride, _MM_HINT_T0);
  } else {
    words = _mm512_maskz_loadu_epi8(valid, from);
  }
  if constexpr (!kHasZeros) words = _mm512_xor_si512(words, flip);  // codes from 0, less 8
  Nibbles made{.even = _mm512_and_si512(words, nibble),
               .odd = _mm512_and_si512(_mm512_srli_epi16(words, 4), nibble),
               .zero = _mm512_setzero_si512(),
               .scale = groups.at(b.scale + row * b.num_groups)};
  if constexpr (kHasZeros) made.zero = groups.at(b.zero + row * b.num_groups);
  return made;
}

template <bool kHasZeros>
TESSERA_VNNI TESSERA_INLINE __m512 add_products(__m512 sum, const InputBlock& x, const Nibbles& b) {
  __m512i part = _mm512_dpbusd_epi32(_mm512_setzero_si512(), b.even, _mm512_load_si512(x.high[0]));
  part = _mm512_dpbusd_epi32(part, b.odd, _mm512_load_si512(x.high[1]));
  part = _mm512_slli_epi32(part, 8);
  part = _mm512_dpbusd_epi32(part, b.even, _mm512_load_si512(x.middle[0]));
  part = _mm512_dpbusd_epi32(part, b.odd, _mm512_load_si512(x.middle[1]));
  part = _mm512_slli_epi32(part, 8);
  part = _mm512_dpbusd_epi32(part, b.even, _mm512_load_si512(x.low[0]));
  part = _mm512_dpbusd_epi32(part, b.odd, _mm512_load_si512(x.low[1]));
  const __m512i sums = _mm512_load_si512(x.sum);
  const __m512i shift = kHasZeros ? _mm512_mullo_epi32(b.zero, sums) : _mm512_slli_epi32(sums, 3);
  const __m512 value = _mm512_cvtepi32_ps(_mm512_sub_epi32(part, shift));
  return _mm512_fmadd_ps(value, _mm512_mul_ps(_mm512_load_ps(x.unit), b.scale), sum);
}

// The rows of a that a tile reads, from its first one.
struct InputRows {
  const InputBlock* first;
  int64_t stride;  // blocks from one row to the next
};

// Adds a block. Recursion over rows and columns, not loops, so that the sums stay in registers.
template <int kRow, int kCol, int kRows, int kNumCols, bool kHasZeros>
TESSERA_VNNI TESSERA_INLINE void add_rows(__m512 (&sums)[kRows][kNumCols], const InputRows& a,
                                          int64_t block, const Nibbles& b) {
  sums[kRow][kCol] = add_products<kHasZeros>(sums[kRow][kCol], a.first[kRow * a.stride + block], b);
  if constexpr (kRow + 1 < kRows) {
    add_rows<kRow + 1, kCol, kRows, kNumCols, kHasZeros>(sums, a, block, b);
  }
}
template <int kCol, int kRows, int kNumCols, bool kHasZeros, bool kIsWhole, class Groups>
TESSERA_VNNI TESSERA_INLINE void add_block(__m512 (&sums)[kRows][kNumCols], const InputRows& a,
                                           const WeightRows& b, int64_t block, __mmask64 valid,
                                           const Groups& groups) {
  const Nibbles nibbles = load_nibbles<kHasZeros, kIsWhole>(b, kCol, block, valid, groups);
  add_rows<0, kCol, kRows, kNumCols, kHasZeros>(sums, a, block, nibbles);
  if constexpr (kCol + 1 < kNumCols) {
    add_block<kCol + 1, kRows, kNumCols, kHasZeros, kIsWhole>(sums, a, b, block, valid, groups);
  }
}

template <class T, int kNumCols>
TESSERA_INLINE void store_as(const float* sums, const GemmParams& p, int64_t row, int64_t col) {
  T* out = static_cast<T*>(p.out) + row * p.out_stride + col;
  for (int64_t c = 0; c < kNumCols; ++c) out[c] = from_float<T>(sums[c]);
}

template <int kNumCols>
TESSERA_INLINE void finish(float* sums, const GemmParams& p, int64_t row, int64_t col) {
  if (p.bias != nullptr) {
    for (int c = 0; c < kNumCols; ++c) sums[c] += bias_at(p, col + c);
  }
  switch (p.out_type) {
    case DType::bf16: return store_as<Bf16, kNumCols>(sums, p, row, col);
    case DType::f16: return store_as<F16, kNumCols>(sums, p, row, col);
    default: return store_as<float, kNumCols>(sums, p, row, col);
  }
}

// The products of a tile over all of k.
template <int kRows, int kNumCols, bool kHasZeros>
TESSERA_VNNI TESSERA_INLINE void add_all(__m512 (&sums)[kRows][kNumCols], const GemmParams& p,
                                         const InputRows& a, const WeightRows& b) {
  const int64_t num_whole = p.k / kBlock;
  const __mmask64 valid = (__mmask64{1} << (p.k % kBlock + 1) / 2) - 1;
  if (p.num_segments == 1 || p.segment % kBlock == 0) {
    const int64_t per_group = p.num_segments == 1 ? num_whole + 1 : p.segment / kBlock;
    OneGroup group{0};
    for (int64_t block = 0, left = per_group; block < num_whole; ++block) {
      add_block<0, kRows, kNumCols, kHasZeros, true>(sums, a, b, block, valid, group);
      if (--left == 0) {
        left = per_group;
        ++group.first;
      }
    }
    if (p.k % kBlock == 0) return;
    add_block<0, kRows, kNumCols, kHasZeros, false>(sums, a, b, num_whole, valid, group);
    return;
  }
  for (int64_t block = 0; block < num_whole; ++block) {
    const LaneGroups groups(p, block * kBlock);
    add_block<0, kRows, kNumCols, kHasZeros, true>(sums, a, b, block, valid, groups);
  }
  if (p.k % kBlock == 0) return;
  const LaneGroups groups(p, num_whole * kBlock);
  add_block<0, kRows, kNumCols, kHasZeros, false>(sums, a, b, num_whole, valid, groups);
}

template <int kRows, int kNumCols, bool kHasZeros>
TESSERA_VNNI TESSERA_INLINE void multiply_tile(const GemmParams& p, int64_t row, int64_t col) {
  const InputRows a{reinterpret_cast<const InputBlock*>(p.a_floats + row * p.floats_stride),
                    p.floats_stride / kGemmVnniBlockFloats};
  const WeightRows b(p, col);
  __m512 sums[kRows][kNumCols];
  for (auto& of_row : sums) {
    for (__m512& sum : of_row) sum = _mm512_setzero_ps();
  }
  add_all<kRows, kNumCols, kHasZeros>(sums, p, a, b);
  for (int r = 0; r < kRows; ++r) {
    alignas(16) float finished[kCols];
    constexpr int kLast = kNumCols - 1;
    _mm_store_ps(finished, fold_four(sums[r][0], sums[r][std::min(1, kLast)],
                                     sums[r][std::min(2, kLast)], sums[r][kLast]));
    finish<kNumCols>(finished, p, row + r, col);
  }
}

template <int kRows, bool kHasZeros>
TESSERA_VNNI void multiply_rows(const GemmParams& p, int64_t row, GemmRange cols) {
  int64_t col = cols.begin;
  for (; col + kCols <= cols.end; col += kCols) multiply_tile<kRows, kCols, kHasZeros>(p, row, col);
  for (; col < cols.end; ++col) multiply_tile<kRows, 1, kHasZeros>(p, row, col);
}

template <bool kHasZeros>
void multiply_as(const GemmParams& p, GemmRange rows, GemmRange cols) {
  int64_t row = rows.begin;
  for (; row + 4 <= rows.end; row += 4) multiply_rows<4, kHasZeros>(p, row, cols);
  for (; row + 2 <= rows.end; row += 2) multiply_rows<2, kHasZeros>(p, row, cols);
  for (; row < rows.end; ++row) multiply_rows<1, kHasZeros>(p, row, cols);
}

void widen_rows_vnni(const GemmParams& p, GemmRange rows) {
  return p.a_type == DType::bf16 ? widen_as<InputBlock, Bf16>(p, rows)
                                 : widen_as<InputBlock, F16>(p, rows);
}

void multiply_vnni(const GemmParams& p, GemmRange rows, GemmRange cols) {
  return p.b_zero_codes != nullptr ? multiply_as<true>(p, rows, cols)
                                   : multiply_as<false>(p, rows, cols);
}

}  // namespace

GemmVnni gemm_i4_vnni() {
  static const bool has_vnni = __builtin_cpu_supports("avx512vnni");
  if (!has_vnni) return {};
  return {&widen_rows_vnni, &multiply_vnni};
}

}  // namespace tessera::cpu

#undef TESSERA_INLINE
#undef TESSERA_VNNI

#else

namespace tessera::cpu {

GemmVnni gemm_i4_vnni() { return {}; }

}  // namespace tessera::cpu

#endif
