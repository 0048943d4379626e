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

#include "tessera/core/convert.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/gemm_kernel.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using Floats = hn::Vec<FloatTag>;
using QuadTag = hn::FixedTag<float, 4>;
using Quad = hn::Vec<QuadTag>;

constexpr int64_t kLanes = hn::MaxLanes(FloatTag());
constexpr int kCols = 4;
// As many rows as the registers hold: 32 or 16, less those for a, b and the scales.
constexpr int max_rows(bool has_scales) {
  return HWY_MAX_BYTES == 64 ? (has_scales ? 4 : 6) : (has_scales ? 2 : 3);
}
static_assert(kGemmPad % kLanes == 0);

// kLanes elements as floats; widening is exact.
HWY_INLINE Floats load(const float* from) { return hn::LoadU(FloatTag(), from); }
HWY_INLINE Floats load(const F16* from) {
#if HWY_TARGET == HWY_SSE4  // without F16C Highway takes infinities and NaN for numbers
  alignas(64) float floats[kLanes];
  for (int64_t i = 0; i < kLanes; ++i) floats[i] = to_float(from[i]);
  return load(floats);
#else
  const hn::Rebind<hwy::float16_t, FloatTag> tag;
  return hn::PromoteTo(FloatTag(), hn::LoadU(tag, reinterpret_cast<const hwy::float16_t*>(from)));
#endif
}
HWY_INLINE Floats load(const Bf16* from) {
  const hn::Rebind<uint16_t, FloatTag> tag;
  const hn::Rebind<uint32_t, FloatTag> wide;
  const auto bits = hn::PromoteTo(wide, hn::LoadU(tag, reinterpret_cast<const uint16_t*>(from)));
  return hn::BitCast(FloatTag(), hn::ShiftLeft<16>(bits));
}
HWY_INLINE Floats load(const int8_t* from) {
  const hn::Rebind<int8_t, FloatTag> tag;
  const hn::Rebind<int32_t, FloatTag> wide;
  return hn::ConvertTo(FloatTag(), hn::PromoteTo(wide, hn::LoadU(tag, from)));
}

// Fewer than kLanes elements, zeros behind them. Nothing beyond them is read.
template <class T>
HWY_INLINE Floats load_tail(const T* from, int64_t count) {
  alignas(64) T padded[kLanes] = {};
  std::copy_n(from, count, padded);
  return load(padded);
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

// A tile of partial sums, and what a step of k adds to it.
template <int kRows>
using Sums = Floats[kRows][kCols];

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

HWY_INLINE Quad fold_blocks(Quad v) { return v; }
template <class V>
HWY_INLINE Quad fold_blocks(V v) {
  const hn::Half<hn::DFromV<V>> half;
  return fold_blocks(hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
}

// The sums of the lanes of four vectors, each by the same tree: within blocks of four lanes
// (0 + 2) + (1 + 3), then the upper half of the blocks onto the lower.
HWY_INLINE Quad fold_four(const Floats (&v)[kCols]) {
  const FloatTag d;
  const hn::Repartition<uint64_t, FloatTag> pairs;
  const auto v01 = hn::BitCast(
      pairs, hn::Add(hn::InterleaveLower(d, v[0], v[1]), hn::InterleaveUpper(d, v[0], v[1])));
  const auto v23 = hn::BitCast(
      pairs, hn::Add(hn::InterleaveLower(d, v[2], v[3]), hn::InterleaveUpper(d, v[2], v[3])));
  return fold_blocks(hn::Add(hn::BitCast(d, hn::InterleaveLower(pairs, v01, v23)),
                             hn::BitCast(d, hn::InterleaveUpper(pairs, v01, v23))));
}

// The finished part of a tile, rounded to the type of out. Out of line: one copy serves all tiles.
template <class T>
HWY_NOINLINE void store_as(const float* tile, int64_t num_rows, int64_t num_cols, T* out,
                           int64_t out_stride) {
  for (int64_t r = 0; r < num_rows; ++r, tile += kCols, out += out_stride) {
    if (num_cols == kCols) {  // a count the compiler knows becomes vector code
      for (int c = 0; c < kCols; ++c) out[c] = from_float<T>(tile[c]);
    } else {
      for (int64_t c = 0; c < num_cols; ++c) out[c] = from_float<T>(tile[c]);
    }
  }
}

HWY_INLINE void store(const float* tile, const GemmParams& p, int64_t row, int64_t num_rows,
                      int64_t col, int64_t num_cols) {
  const int64_t at = row * p.out_stride + col;
  switch (p.out_type) {
    case DType::bf16:
      return store_as(tile, num_rows, num_cols, static_cast<Bf16*>(p.out) + at, p.out_stride);
    case DType::f16:
      return store_as(tile, num_rows, num_cols, static_cast<F16*>(p.out) + at, p.out_stride);
    default:
      return store_as(tile, num_rows, num_cols, static_cast<float*>(p.out) + at, p.out_stride);
  }
}

// `count` values of a vector over n, zeros behind them.
template <class T>
HWY_NOINLINE Quad load_quad(const void* vector, int64_t col, int64_t count) {
  alignas(16) float floats[kCols] = {};
  const T* from = static_cast<const T*>(vector) + col;
  for (int64_t c = 0; c < count; ++c) floats[c] = to_float(from[c]);
  return hn::Load(QuadTag(), floats);
}

HWY_INLINE Quad load_bias(const GemmParams& p, int64_t col, int64_t count) {
  if (p.bias == nullptr) return hn::Zero(QuadTag());
  switch (p.a_type) {
    case DType::bf16: return load_quad<Bf16>(p.bias, col, count);
    case DType::f16: return load_quad<F16>(p.bias, col, count);
    default: return load_quad<float>(p.bias, col, count);
  }
}

// One tile of out, up to four columns wide. Rows of b beyond the edge repeat the last inside it.
template <class B, int kRows, bool kHasScales>
HWY_INLINE void multiply_tile(const GemmParams& p, const float* const (&a)[kRows], int64_t col,
                              int64_t num_cols, float (&finished)[kRows * kCols]) {
  int64_t b_row[kCols];
  const B* b[kCols];
  for (int64_t c = 0; c < kCols; ++c) {
    b_row[c] = col + std::min(c, num_cols - 1);
    b[c] = static_cast<const B*>(p.b) + b_row[c] * p.b_stride;
  }
  const Quad bias = load_bias(p, col, num_cols);
  const Quad factor = p.b_scale == nullptr || kHasScales
                          ? hn::Set(QuadTag(), 1.0f)
                          : load_quad<float>(p.b_scale, col, num_cols);
  Sums<kRows> sums;
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kCols; ++c) sums[r][c] = hn::Zero(FloatTag());
  }
  Floats scale[kCols];
  if constexpr (kHasScales) {
    for (int64_t s = 0; s < p.num_segments; ++s) {
      for (int c = 0; c < kCols; ++c) {
        scale[c] = hn::Set(FloatTag(), p.b_scale[b_row[c] * p.num_segments + s]);
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
