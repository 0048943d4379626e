// What the tiles of the matrix product share, for one instruction set: loads, folds and stores.
// SPDX-License-Identifier: MIT
//
// Compiled once for each instruction set of hwy/foreach_target.h, so the include guard below is
// toggled for each. Include it after hwy/highway.h.
#if defined(TESSERA_CPU_GEMM_TILE_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_CPU_GEMM_TILE_H
#undef TESSERA_CPU_GEMM_TILE_H
#else
#define TESSERA_CPU_GEMM_TILE_H
#endif

#include <algorithm>
#include <cstdint>

#include "cpu/gemm_kernel.h"
#include "hwy/highway.h"
#include "tessera/core/convert.h"

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
static_assert(kGemmPad % kLanes == 0);

// A tile of partial sums.
template <int kRows>
using Sums = Floats[kRows][kCols];

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
// The bits of an e4m3 code, moved to where f16 has its exponent and fraction, read as the value
// times 2^-8, subnormals included; the caller multiplies by 256. NaN reads as a number.
HWY_INLINE Floats load(const E4m3* from) {
  const hn::Rebind<int8_t, FloatTag> tag;
  const hn::Rebind<int16_t, FloatTag> words;
  const hn::Rebind<hwy::float16_t, FloatTag> halves;
  const auto code = hn::PromoteTo(words, hn::LoadU(tag, reinterpret_cast<const int8_t*>(from)));
  const auto bits = hn::And(hn::ShiftLeft<7>(code), hn::Set(words, int16_t{-0x4001}));
  return hn::PromoteTo(FloatTag(), hn::BitCast(halves, bits));
}
// e5m2 is the upper half of f16.
HWY_INLINE Floats load(const E5m2* from) {
#if HWY_TARGET == HWY_SSE4
  alignas(64) float floats[kLanes];
  for (int64_t i = 0; i < kLanes; ++i) floats[i] = to_float(from[i]);
  return load(floats);
#else
  const hn::Rebind<uint8_t, FloatTag> tag;
  const hn::Rebind<uint16_t, FloatTag> words;
  const hn::Rebind<hwy::float16_t, FloatTag> halves;
  const auto code = hn::PromoteTo(words, hn::LoadU(tag, reinterpret_cast<const uint8_t*>(from)));
  return hn::PromoteTo(FloatTag(), hn::BitCast(halves, hn::ShiftLeft<8>(code)));
#endif
}

// Fewer than kLanes elements, zeros behind them. Nothing beyond them is read.
template <class T>
HWY_INLINE Floats load_tail(const T* from, int64_t count) {
  alignas(64) T padded[kLanes] = {};
  std::copy_n(from, count, padded);
  return load(padded);
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

}  // namespace
}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TESSERA_CPU_GEMM_TILE_H
