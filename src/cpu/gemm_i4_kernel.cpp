// The tiles of the matrix product with a 4-bit weight, in dot form, codes read as they lie.
// SPDX-License-Identifier: MIT
//
//   out[i, j] = sum over groups of (sum over k of a[i, k] * (code[j, k] - zero)) * scale, plus bias
//
// Work      A tile is up to 4 rows of a against 4 rows of b. A block of k is 8 codes for each lane:
//           a lane holds a 32-bit word of b, and step s multiplies nibble s of every lane. Rows of
//           a are stored in that order, [block][step][lane].
// Output    A lane adds the 8 products of its word from zero, by one MulAdd each, and adds that sum
//           times the scale; at the end the lanes are folded by one tree. Neither the tile nor the
//           place in it enters, so a row of out has the same bits for every m.
// Cost      With one row of a: a shift, a table lookup and a MulAdd for 16 codes with AVX-512; two
//           shifts, a conversion and a MulAdd for fewer lanes. Codes are read once, from 4 rows at
//           a time: memory is the limit when they do not come from a cache.
// Needs     a_floats filled by widen_rows_i4; segments of a multiple of 8, or one segment.
#include <algorithm>

#include "cpu/gemm_kernel.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/gemm_i4_kernel.cpp"
#include "hwy/foreach_target.h"  // must precede highway.h
#include "hwy/highway.h"
#include "cpu/gemm_tile.h"  // of this instruction set: after both
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {
namespace {

using IntTag = hn::RebindToSigned<FloatTag>;
using Ints = hn::Vec<IntTag>;

constexpr int64_t kBlock = 8 * kLanes;  // elements of k in a block
constexpr int kMaxTileRows = HWY_MAX_BYTES == 64 ? 4 : 2;
static_assert(kGemmI4Pad % kBlock == 0);

template <class T>
void widen_as(const GemmParams& p, GemmRange rows) {
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const T* from = static_cast<const T*>(p.a) + row * p.a_stride;
    float* to = p.a_floats + row * p.floats_stride;
    for (int64_t i = 0; i < p.floats_stride; ++i) {
      const int64_t lane = i % kLanes, step = i / kLanes % 8;
      const int64_t k = i / kBlock * kBlock + 8 * lane + step;
      to[i] = k < p.k ? to_float(from[k]) : 0.0f;
    }
  }
}

// What the scales, or the zero points, of the lanes of a block are.
struct LaneGroups {
  int64_t segment, num_segments;
  Ints lane_group;  // of a lane, within a block that holds whole segments

  explicit HWY_INLINE LaneGroups(const GemmParams& p)
      : segment(p.segment), num_segments(p.num_segments) {
    alignas(64) int32_t groups[kLanes];
    for (int64_t l = 0; l < kLanes; ++l) groups[l] = static_cast<int32_t>(8 * l / p.segment);
    lane_group = hn::Load(IntTag(), groups);
  }

  // The values of the lanes, of those of a row of b.
  HWY_INLINE Floats at(const float* values, int64_t first) const {
    if (num_segments == 1) return hn::Set(FloatTag(), values[0]);
    if (segment % kBlock == 0) return hn::Set(FloatTag(), values[first / segment]);
    // Four lanes are as fast one by one, and without masks a load would read beyond the values.
    if (kLanes > 4 && kBlock % segment == 0) {
      const int64_t group = first / segment;
      const auto count = static_cast<size_t>(std::min(kBlock / segment, num_segments - group));
      const Floats some = hn::MaskedLoad(hn::FirstN(FloatTag(), count), FloatTag(), values + group);
      return hn::TableLookupLanes(some, hn::IndicesFromVec(FloatTag(), lane_group));
    }
    alignas(64) float lanes[kLanes];
    for (int64_t l = 0; l < kLanes; ++l) {
      lanes[l] = values[std::min((first + 8 * l) / segment, num_segments - 1)];
    }
    return hn::Load(FloatTag(), lanes);
  }
};

// The words of a block; codes beyond k are zeros, and a's are too.
HWY_INLINE Ints load_words(const uint8_t* row, int64_t first, int64_t k) {
  const uint8_t* from = row + first / 2;
  if (first + kBlock <= k) {
    return hn::LoadU(IntTag(), reinterpret_cast<const int32_t*>(from));
  }
  alignas(64) uint8_t padded[kBlock / 2] = {};
  std::copy_n(from, (k - first + 1) / 2, padded);
  return hn::Load(IntTag(), reinterpret_cast<const int32_t*>(padded));
}

// Nibble kStep of every word as a number, less the zero point if there are any. `table` holds the
// numbers of the 16 codes; a lookup reads the lowest four bits of an index.
template <int kStep, bool kHasZeros>
HWY_INLINE Floats codes_of(Ints words, Floats table, Floats zero) {
  Floats codes;
  if constexpr (kLanes == 16) {
    const auto shifted = hn::ShiftRight<4 * kStep>(words);
    codes = hn::TableLookupLanes(table, hn::IndicesFromVec(FloatTag(), shifted));
  } else if constexpr (kHasZeros) {
    const auto low = hn::And(hn::ShiftRight<4 * kStep>(words), hn::Set(IntTag(), 15));
    codes = hn::ConvertTo(FloatTag(), low);
  } else {
    codes = hn::ConvertTo(FloatTag(), hn::ShiftRight<28>(hn::ShiftLeft<28 - 4 * kStep>(words)));
  }
  return kHasZeros ? hn::Sub(codes, zero) : codes;
}

template <int kStep, bool kHasZeros, int kRows>
HWY_INLINE void add_step(Floats (&sums)[kRows], const float* const (&a)[kRows], int64_t first,
                         Ints words, Floats table, Floats zero) {
  const Floats codes = codes_of<kStep, kHasZeros>(words, table, zero);
  for (int r = 0; r < kRows; ++r) {
    const Floats x = hn::LoadU(FloatTag(), a[r] + first + kStep * kLanes);
    sums[r] = hn::MulAdd(x, codes, sums[r]);
  }
}

template <bool kHasZeros>
HWY_INLINE Floats code_table() {
  alignas(64) float table[kLanes] = {};
  for (int64_t i = 0; i < std::min<int64_t>(kLanes, 16); ++i) {
    table[i] = static_cast<float>(kHasZeros || i < 8 ? i : i - 16);
  }
  return hn::Load(FloatTag(), table);
}

// Rows of b, their scales and their zero points, at a column of out.
struct WeightRows {
  const uint8_t* codes[kCols];
  const float* scale[kCols];
  const float* zero[kCols];

  HWY_INLINE WeightRows(const GemmParams& p, int64_t col, int64_t num_cols) {
    for (int64_t c = 0; c < kCols; ++c) {
      const int64_t row = col + std::min(c, num_cols - 1);  // beyond the edge the last repeats
      codes[c] = static_cast<const uint8_t*>(p.b) + row * p.b_stride / 2;
      scale[c] = p.b_scale + row * p.num_segments;
      zero[c] = p.b_zero == nullptr ? nullptr : p.b_zero + row * p.num_segments;
    }
  }
};

template <int kRows, bool kHasZeros>
void multiply_rows(const GemmParams& p, int64_t row, int64_t num_rows, GemmRange cols) {
  const float* a[kRows];
  for (int64_t r = 0; r < kRows; ++r) {
    a[r] = p.a_floats + (row + std::min(r, num_rows - 1)) * p.floats_stride;
  }
  const LaneGroups groups(p);
  const Floats table = code_table<kHasZeros>();
  for (int64_t col = cols.begin; col < cols.end; col += kCols) {
    const int64_t num_cols = std::min<int64_t>(kCols, cols.end - col);
    const WeightRows b(p, col, num_cols);
    Sums<kRows> sums;
    for (int r = 0; r < kRows; ++r) {
      for (int c = 0; c < kCols; ++c) sums[r][c] = hn::Zero(FloatTag());
    }
    for (int64_t first = 0; first < p.k; first += kBlock) {
      for (int c = 0; c < kCols; ++c) {
        const Ints words = load_words(b.codes[c], first, p.k);
        const Floats scale = groups.at(b.scale[c], first);
        const Floats zero = kHasZeros ? groups.at(b.zero[c], first) : scale;
        Floats part[kRows];
        for (int r = 0; r < kRows; ++r) part[r] = hn::Zero(FloatTag());
        add_step<0, kHasZeros>(part, a, first, words, table, zero);
        add_step<1, kHasZeros>(part, a, first, words, table, zero);
        add_step<2, kHasZeros>(part, a, first, words, table, zero);
        add_step<3, kHasZeros>(part, a, first, words, table, zero);
        add_step<4, kHasZeros>(part, a, first, words, table, zero);
        add_step<5, kHasZeros>(part, a, first, words, table, zero);
        add_step<6, kHasZeros>(part, a, first, words, table, zero);
        add_step<7, kHasZeros>(part, a, first, words, table, zero);
        for (int r = 0; r < kRows; ++r) sums[r][c] = hn::MulAdd(part[r], scale, sums[r][c]);
      }
    }
    const Quad bias = load_bias(p, col, num_cols);
    alignas(64) float finished[kRows * kCols];
    for (int r = 0; r < kRows; ++r) {
      hn::Store(hn::Add(fold_four(sums[r]), bias), QuadTag(), finished + r * kCols);
    }
    store(finished, p, row, num_rows, col, num_cols);
  }
}

template <bool kHasZeros>
void multiply_as(const GemmParams& p, GemmRange rows, GemmRange cols) {
  for (int64_t row = rows.begin; row < rows.end; row += kMaxTileRows) {
    const int64_t left = std::min<int64_t>(kMaxTileRows, rows.end - row);
    if (left == 1) {
      multiply_rows<1, kHasZeros>(p, row, left, cols);
    } else if (left == 2) {
      multiply_rows<2, kHasZeros>(p, row, left, cols);
    } else {
      multiply_rows<kMaxTileRows, kHasZeros>(p, row, left, cols);
    }
  }
}

}  // namespace

void widen_rows_i4(const GemmParams& p, GemmRange rows) {
  switch (p.a_type) {
    case DType::bf16: return widen_as<Bf16>(p, rows);
    case DType::f16: return widen_as<F16>(p, rows);
    default: return widen_as<float>(p, rows);
  }
}

void multiply_i4(const GemmParams& p, GemmRange rows, GemmRange cols) {
  return p.b_zero != nullptr ? multiply_as<true>(p, rows, cols) : multiply_as<false>(p, rows, cols);
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {

SimdBuilds<void(const GemmParams&, GemmRange)> gemm_i4_widen_rows_builds() {
  return {HWY_STATIC_DISPATCH(widen_rows_i4), HWY_CHOOSE_AVX2(widen_rows_i4),
          HWY_CHOOSE_AVX3(widen_rows_i4)};
}

SimdBuilds<void(const GemmParams&, GemmRange, GemmRange)> gemm_i4_multiply_builds() {
  return {HWY_STATIC_DISPATCH(multiply_i4), HWY_CHOOSE_AVX2(multiply_i4),
          HWY_CHOOSE_AVX3(multiply_i4)};
}

}  // namespace tessera::cpu
#endif
