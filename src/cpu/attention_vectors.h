// Building blocks of attention for one instruction set: 2^x, transposes, and tiles of products.
// SPDX-License-Identifier: MIT
//
// Compiled once for each instruction set of hwy/foreach_target.h, so the include guard below is
// toggled for each. Include it after hwy/highway.h.
#if defined(TESSERA_CPU_ATTENTION_VECTORS_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_CPU_ATTENTION_VECTORS_H
#undef TESSERA_CPU_ATTENTION_VECTORS_H
#else
#define TESSERA_CPU_ATTENTION_VECTORS_H
#endif

#include <cstdint>
#include <limits>

#include "cpu/attention_rows.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::CappedTag<float, static_cast<size_t>(kSumLanes)>;
using Vector = hn::Vec<Floats>;
constexpr Floats kFloats;
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(kFloats));
constexpr float kLowest = -std::numeric_limits<float>::infinity();

// A tile of products is kTileRows by kTileVectors accumulators: 24 of 32 registers, or 12 of 16.
constexpr int kTileRows = 6;
constexpr int kTileVectors = HWY_MAX_BYTES >= 64 || HWY_ARCH_ARM ? 4 : 2;

// 2^x for x <= 0. x is split into an integer n and f in [-1/2, 1/2]: adding 1.5 * 2^23 + 127 rounds
// x and leaves n + 127, the exponent bits of 2^n, in the low bits of the sum. 2^f is a polynomial
// whose error is 1.6e-8, a quarter of an ulp, to which the roundings of the last steps add less
// than one. Results below the normal range are 0, and NaN stays NaN.
HWY_INLINE Vector exp2_of(Vector x) {
  const hn::RebindToSigned<Floats> ints;
  const Vector rounder = hn::Set(kFloats, 12582912.0f + 127.0f);
  const Vector shifted = hn::Add(x, rounder);
  const Vector f = hn::Sub(x, hn::Sub(shifted, rounder));
  Vector p = hn::Set(kFloats, 0x1.41fbbcp-13f);
  p = hn::MulAdd(p, f, hn::Set(kFloats, 0x1.5f3e52p-10f));
  p = hn::MulAdd(p, f, hn::Set(kFloats, 0x1.3b2d4cp-7f));
  p = hn::MulAdd(p, f, hn::Set(kFloats, 0x1.c6aee8p-5f));
  p = hn::MulAdd(p, f, hn::Set(kFloats, 0x1.ebfbdcp-3f));
  p = hn::MulAdd(p, f, hn::Set(kFloats, 0x1.62e43p-1f));
  p = hn::MulAdd(p, f, hn::Set(kFloats, 1.0f));
  const auto exponent = hn::ShiftLeft<23>(hn::BitCast(ints, shifted));
  const Vector scaled = hn::Mul(p, hn::BitCast(kFloats, exponent));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(kFloats, -126.0f)), scaled);
}

// Four vectors whose blocks of four lanes are rows become four whose blocks are columns.
HWY_INLINE void transpose_blocks(Vector& a, Vector& b, Vector& c, Vector& d) {
  const Vector ac_low = hn::InterleaveLower(kFloats, a, c);
  const Vector bd_low = hn::InterleaveLower(kFloats, b, d);
  const Vector ac_high = hn::InterleaveUpper(kFloats, a, c);
  const Vector bd_high = hn::InterleaveUpper(kFloats, b, d);
  a = hn::InterleaveLower(kFloats, ac_low, bd_low);
  b = hn::InterleaveUpper(kFloats, ac_low, bd_low);
  c = hn::InterleaveLower(kFloats, ac_high, bd_high);
  d = hn::InterleaveUpper(kFloats, ac_high, bd_high);
}

// A square of kLanes rows, `stride` apart, to one of rows kKeyBlock apart.
HWY_INLINE void transpose_square(const float* from, int64_t stride, float* to) {
  Vector v[kLanes];
  for (int64_t r = 0; r < kLanes; ++r) v[r] = hn::LoadU(kFloats, from + r * stride);
  for (int64_t r = 0; r < kLanes; r += 4) transpose_blocks(v[r], v[r + 1], v[r + 2], v[r + 3]);
  // Block b of v[4 i + r] is now part i of column 4 b + r.
  for (int64_t r = 0; r < 4; ++r) {
    float* column = to + r * kKeyBlock;
    if constexpr (kLanes == 4) {
      hn::StoreU(v[r], kFloats, column);
    } else if constexpr (kLanes == 8) {
      hn::StoreU(hn::ConcatLowerLower(kFloats, v[4 + r], v[r]), kFloats, column);
      hn::StoreU(hn::ConcatUpperUpper(kFloats, v[4 + r], v[r]), kFloats, column + 4 * kKeyBlock);
    } else {
      const auto store_pair = [column](Vector even, Vector odd, int64_t first) HWY_ATTR {
        hn::StoreU(hn::OddEvenBlocks(hn::SwapAdjacentBlocks(odd), even), kFloats,
                   column + first * kKeyBlock);
        hn::StoreU(hn::OddEvenBlocks(odd, hn::SwapAdjacentBlocks(even)), kFloats,
                   column + (first + 4) * kKeyBlock);
      };
      store_pair(hn::ConcatLowerLower(kFloats, v[8 + r], v[r]),
                 hn::ConcatLowerLower(kFloats, v[12 + r], v[4 + r]), 0);
      store_pair(hn::ConcatUpperUpper(kFloats, v[8 + r], v[r]),
                 hn::ConcatUpperUpper(kFloats, v[12 + r], v[4 + r]), 8);
    }
  }
}

// Rows [begin, end) of a block become columns of `to`, [row_stride, 64], by whole vectors, so their
// neighbours may as well.
HWY_INLINE void transpose(const float* rows, int64_t row_stride, int64_t begin, int64_t end,
                          float* to) {
  for (int64_t key = begin / kLanes * kLanes; key < end; key += kLanes) {
    for (int64_t i = 0; i < row_stride; i += kLanes) {
      transpose_square(rows + key * row_stride + i, row_stride, to + i * kKeyBlock + key);
    }
  }
}

// c[r, j] += sum_k a[r, k] * b[k, j] for kRows rows and kVectors vectors of j, each element as one
// chain in the order of k; from zero if `is_first`.
template <int kRows, int kVectors>
HWY_INLINE void multiply_tile(const float* HWY_RESTRICT a, int64_t a_stride,
                              const float* HWY_RESTRICT b, int64_t b_stride, int64_t num_k,
                              float* HWY_RESTRICT c, int64_t c_stride, bool is_first) {
  Vector sum[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int j = 0; j < kVectors; ++j) {
      sum[r][j] = is_first ? hn::Zero(kFloats) : hn::LoadU(kFloats, c + r * c_stride + j * kLanes);
    }
  }
  for (int64_t k = 0; k < num_k; ++k) {
    Vector right[kVectors];
    for (int j = 0; j < kVectors; ++j) right[j] = hn::LoadU(kFloats, b + k * b_stride + j * kLanes);
    for (int r = 0; r < kRows; ++r) {
      const Vector left = hn::Set(kFloats, a[r * a_stride + k]);
      for (int j = 0; j < kVectors; ++j) sum[r][j] = hn::MulAdd(left, right[j], sum[r][j]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int j = 0; j < kVectors; ++j) {
      hn::StoreU(sum[r][j], kFloats, c + r * c_stride + j * kLanes);
    }
  }
}

// The same over num_vectors vectors of j.
template <int kRows>
HWY_NOINLINE void multiply_rows(const float* a, int64_t a_stride, const float* b, int64_t b_stride,
                                int64_t num_k, float* c, int64_t c_stride, int64_t num_vectors,
                                bool is_first) {
  int64_t j = 0;
  for (; j + kTileVectors <= num_vectors; j += kTileVectors) {
    multiply_tile<kRows, kTileVectors>(a, a_stride, b + j * kLanes, b_stride, num_k, c + j * kLanes,
                                       c_stride, is_first);
  }
  if (kTileVectors > 2 && j + 2 <= num_vectors) {
    multiply_tile<kRows, 2>(a, a_stride, b + j * kLanes, b_stride, num_k, c + j * kLanes, c_stride,
                            is_first);
    j += 2;
  }
  if (j < num_vectors) {
    multiply_tile<kRows, 1>(a, a_stride, b + j * kLanes, b_stride, num_k, c + j * kLanes, c_stride,
                            is_first);
  }
}

using MultiplyRows = void (*)(const float*, int64_t, const float*, int64_t, int64_t, float*,
                              int64_t, int64_t, bool);
constexpr MultiplyRows kMultiplyRows[kTileRows] = {&multiply_rows<1>, &multiply_rows<2>,
                                                   &multiply_rows<3>, &multiply_rows<4>,
                                                   &multiply_rows<5>, &multiply_rows<6>};

}  // namespace
}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // the guard of this instruction set
