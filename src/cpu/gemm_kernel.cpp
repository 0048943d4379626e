// The tiles of the matrix product, in dot form: vectors along k, b as checkpoints store it.
// SPDX-License-Identifier: MIT
//
//   out[i, j] = sum over k of a[i, k] * b[j, k], times b_scale[j], plus bias[j]
//
// Work      A tile is up to 6 rows of a, as floats, against 4 rows of b, and keeps a vector of
//           partial sums for each pair in registers. A step of k loads a vector of each row, widens
//           those of b to float, and multiplies all pairs. At the end the 4 vectors of a row of a
//           are folded into one of 4 lanes, which become 4 outputs.
// Output    Each output is the sum of its lanes: lane l adds the products of k = l, l + lanes, ...
//           in that order, each by one MulAdd, and the lanes are folded by one tree. Neither the
//           size of the tile nor the place in it enters, so a row of out has the same bits for
//           every m. A ragged edge computes a whole tile on repeated rows and stores part of it.
// Cost      24 multiply-adds for 10 loads with 32 registers: the multipliers are the limit. With
//           one row of a, each element of b is read once, from 4 rows at a time: widening is the
//           limit while b comes from a cache, memory when it does not.
// Needs     a_floats filled by widen_rows, or a of f32 whose segments are whole vectors.
#include "cpu/gemm_kernel.h"

#include <algorithm>
#include <limits>

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/gemm_kernel.cpp"
#include "hwy/foreach_target.h"  // must precede highway.h
#include "hwy/highway.h"
#include "cpu/gemm_tile.h"  // of this instruction set: after both
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {
namespace {

// As many rows as the registers hold: 32 or 16, less those for a, b and the scales.
constexpr int max_rows(bool has_scales) {
  return HWY_MAX_BYTES == 64 ? (has_scales ? 4 : 6) : (has_scales ? 2 : 3);
}

// `load` returns the values of these codes divided by this.
template <class T>
inline constexpr float kCodeUnit = 1.0f;
template <>
inline constexpr float kCodeUnit<E4m3> = 256.0f;

// Whether a row has a NaN that `load` does not show.
template <class T>
HWY_INLINE bool has_nan(const T*, int64_t) {
  return false;
}
HWY_NOINLINE bool has_nan(const E4m3* row, int64_t count) {
  const hn::ScalableTag<uint8_t> bytes;
  const auto sign = hn::Set(bytes, uint8_t{0x80});
  const auto lanes = static_cast<int64_t>(hn::Lanes(bytes));
  const auto* codes = reinterpret_cast<const uint8_t*>(row);
  auto largest = hn::Zero(bytes);  // NaN is the largest code of either sign
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    largest = hn::Max(largest, hn::Or(hn::LoadU(bytes, codes + i), sign));
  }
  bool is_found = !hn::AllFalse(bytes, hn::Eq(largest, hn::Set(bytes, uint8_t{0xff})));
  for (; i < count; ++i) is_found |= (codes[i] & 0x7f) == 0x7f;
  return is_found;
}

template <class T>
void widen_rows_of(const GemmParams& p, GemmRange rows) {
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const T* from = static_cast<const T*>(p.a) + row * p.a_stride;
    float* to = p.a_floats + row * p.floats_stride;
    for (int64_t s = 0; s < p.num_segments; ++s, from += p.segment, to += p.segment_stride) {
      int64_t i = 0;
      for (; i + kLanes <= p.segment; i += kLanes) hn::StoreU(load(from + i), FloatTag(), to + i);
      if (i < p.segment) hn::StoreU(load_tail(from + i, p.segment - i), FloatTag(), to + i);
    }
  }
}

// The vectors of a wait in registers and those of b pass by one at a time, which is what 16
// registers have room for. With a scale for each segment, b is multiplied by it before use: one
// rounding more, shared by the rows of a.
template <bool kHasScales, class B, int kRows>
HWY_INLINE void add_products(Sums<kRows>& sums, const float* const (&a)[kRows], int64_t a_offset,
                             const B* const (&b)[kCols], int64_t b_offset,
                             const Floats (&scale)[kCols]) {
  Floats x[kRows];
  for (int r = 0; r < kRows; ++r) x[r] = hn::LoadU(FloatTag(), a[r] + a_offset);
  for (int c = 0; c < kCols; ++c) {
    Floats y = load(b[c] + b_offset);
    if constexpr (kHasScales) y = hn::Mul(y, scale[c]);
    for (int r = 0; r < kRows; ++r) sums[r][c] = hn::MulAdd(x[r], y, sums[r][c]);
  }
}

// The last elements of a segment of each row of b, fewer than a vector.
template <class B>
HWY_NOINLINE void widen_tails(const B* const (&b)[kCols], int64_t begin, int64_t count,
                              float (&tails)[kCols][kLanes]) {
  for (int c = 0; c < kCols; ++c) hn::Store(load_tail(b[c] + begin, count), FloatTag(), tails[c]);
}

// The products of one segment. The tails are widened before the sums fill the registers.
template <bool kHasScales, class B, int kRows>
HWY_INLINE void add_segment(Sums<kRows>& sums, const GemmParams& p, int64_t s,
                            const float* const (&a)[kRows], const B* const (&b)[kCols],
                            const Floats (&scale)[kCols]) {
  const int64_t a_begin = s * p.segment_stride;
  const int64_t b_begin = s * p.segment;
  const int64_t whole = p.segment / kLanes * kLanes;
  alignas(64) float tails[kCols][kLanes];
  if (whole != p.segment) widen_tails(b, b_begin + whole, p.segment - whole, tails);
  for (int64_t i = 0; i < whole; i += kLanes) {
    add_products<kHasScales>(sums, a, a_begin + i, b, b_begin + i, scale);
  }
  if (whole == p.segment) return;
  const float* const rest[kCols] = {tails[0], tails[1], tails[2], tails[3]};
  add_products<kHasScales>(sums, a, a_begin + whole, rest, 0, scale);
}

// One tile of out, up to four columns wide. Rows of b beyond the edge repeat the last inside it.
template <class B, int kRows, bool kHasScales>
HWY_INLINE void multiply_tile(const GemmParams& p, const float* const (&a)[kRows], int64_t col,
                              int64_t num_cols, float (&finished)[kRows * kCols]) {
  const float* scales[kCols];
  const B* b[kCols];
  for (int64_t c = 0; c < kCols; ++c) {
    const int64_t b_row = col + std::min(c, num_cols - 1);
    b[c] = static_cast<const B*>(p.b) + b_row * p.b_stride;
    if constexpr (kHasScales) scales[c] = p.b_scale + b_row / p.rows_per_scale * p.num_segments;
  }
  const Quad bias = load_bias(p, col, num_cols);
  Quad factor = p.b_scale == nullptr || kHasScales ? hn::Set(QuadTag(), 1.0f)
                                                   : load_quad<float>(p.b_scale, col, num_cols);
  for (size_t c = 0; c < kCols; ++c) {  // whatever it is multiplied with, NaN stays NaN
    if (has_nan(b[c], p.k))
      factor = hn::InsertLane(factor, c, std::numeric_limits<float>::quiet_NaN());
  }
  Sums<kRows> sums;
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kCols; ++c) sums[r][c] = hn::Zero(FloatTag());
  }
  Floats scale[kCols];
  if constexpr (kHasScales) {
    for (int64_t s = 0; s < p.num_segments; ++s) {
      for (int c = 0; c < kCols; ++c) {
        scale[c] = hn::Set(FloatTag(), scales[c][s] * kCodeUnit<B>);
      }
      add_segment<true>(sums, p, s, a, b, scale);
    }
  } else if (p.num_segments == 1) {
    add_segment<false>(sums, p, 0, a, b, scale);
  }
  for (int r = 0; r < kRows; ++r) {
    hn::Store(hn::MulAdd(fold_four(sums[r]), factor, bias), QuadTag(), finished + r * kCols);
  }
}

// Rows [row, row + num_rows) of out against the columns; num_rows <= kRows.
template <class B, int kRows, bool kHasScales>
void multiply_rows(const GemmParams& p, int64_t row, int64_t num_rows, GemmRange cols) {
  const float* a[kRows];
  for (int64_t r = 0; r < kRows; ++r) {
    a[r] = p.a_floats + (row + std::min(r, num_rows - 1)) * p.floats_stride;
  }
  for (int64_t col = cols.begin; col < cols.end; col += kCols) {
    const int64_t num_cols = std::min<int64_t>(kCols, cols.end - col);
    alignas(64) float finished[kRows * kCols];
    multiply_tile<B, kRows, kHasScales>(p, a, col, num_cols, finished);
    store(finished, p, row, num_rows, col, num_cols);
  }
}

template <class B, bool kHasScales>
void multiply_as(const GemmParams& p, GemmRange rows, GemmRange cols) {
  constexpr int kMaxRows = max_rows(kHasScales);
  for (int64_t row = rows.begin; row < rows.end; row += kMaxRows) {
    const int64_t left = std::min<int64_t>(kMaxRows, rows.end - row);
    if (left == 1) {
      multiply_rows<B, 1, kHasScales>(p, row, left, cols);
    } else if (left == 2) {
      multiply_rows<B, 2, kHasScales>(p, row, left, cols);
    } else if (kMaxRows > 4 && left <= 4) {
      multiply_rows<B, 4, kHasScales>(p, row, left, cols);
    } else {
      multiply_rows<B, kMaxRows, kHasScales>(p, row, left, cols);
    }
  }
}

}  // namespace

void widen_rows(const GemmParams& p, GemmRange rows) {
  switch (p.a_type) {
    case DType::bf16: return widen_rows_of<Bf16>(p, rows);
    case DType::f16: return widen_rows_of<F16>(p, rows);
    default: return widen_rows_of<float>(p, rows);
  }
}

void multiply(const GemmParams& p, GemmRange rows, GemmRange cols) {
  switch (p.b_type) {
    case DType::bf16: return multiply_as<Bf16, false>(p, rows, cols);
    case DType::f16: return multiply_as<F16, false>(p, rows, cols);
    case DType::i8:
      return p.num_segments > 1 ? multiply_as<int8_t, true>(p, rows, cols)
                                : multiply_as<int8_t, false>(p, rows, cols);
    // FP8 always has its scales multiplied in, as its dequantised floats do: the same bits.
    case DType::e4m3: return multiply_as<E4m3, true>(p, rows, cols);
    case DType::e5m2: return multiply_as<E5m2, true>(p, rows, cols);
    default: return multiply_as<float, false>(p, rows, cols);
  }
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {

SimdBuilds<void(const GemmParams&, GemmRange)> gemm_widen_rows_builds() {
  return {HWY_STATIC_DISPATCH(widen_rows), HWY_CHOOSE_AVX2(widen_rows),
          HWY_CHOOSE_AVX3(widen_rows)};
}

SimdBuilds<void(const GemmParams&, GemmRange, GemmRange)> gemm_multiply_builds() {
  return {HWY_STATIC_DISPATCH(multiply), HWY_CHOOSE_AVX2(multiply), HWY_CHOOSE_AVX3(multiply)};
}

}  // namespace tessera::cpu
#endif
