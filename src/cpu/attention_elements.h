// Elements of keys and values as floats, in every format of a KV cache, for one instruction set.
// SPDX-License-Identifier: MIT
//
// Compiled once for each instruction set of hwy/foreach_target.h, so the include guard below is
// toggled for each. Include it after hwy/highway.h.
#if defined(TESSERA_CPU_ATTENTION_ELEMENTS_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_CPU_ATTENTION_ELEMENTS_H
#undef TESSERA_CPU_ATTENTION_ELEMENTS_H
#else
#define TESSERA_CPU_ATTENTION_ELEMENTS_H
#endif

#include <concepts>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "tessera/core/convert.h"
#include "tessera/core/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Two i4 codes of a cache: unsigned, the first in the low half.
struct Nibbles {
  uint8_t pair;
};

// Whether elements are stored themselves, and not as codes that have a scale.
template <class T>
constexpr bool kIsPlain = std::same_as<T, float> || std::same_as<T, F16> || std::same_as<T, Bf16>;

// The row that begins with this element.
template <class T>
HWY_INLINE const T* row_at(const void* pages, int64_t element) {
  constexpr int64_t kPerUnit = std::same_as<T, Nibbles> ? 2 : 1;
  return static_cast<const T*>(pages) + element / kPerUnit;
}

template <class D>
HWY_INLINE hn::Vec<D> floats_of(D d, hn::Vec<hn::Rebind<hwy::float16_t, D>> halves) {
  const hn::Vec<D> wide = hn::PromoteTo(d, halves);
  if constexpr (HWY_TARGET != HWY_SSE4) return wide;
  // Without F16C, Highway converts infinity and NaN to numbers of 2^16 and more.
  const auto is_special = hn::Ge(hn::Abs(wide), hn::Set(d, 65536.0f));
  const auto special = hn::Or(wide, hn::Set(d, std::numeric_limits<float>::infinity()));
  return hn::IfThenElse(is_special, special, wide);
}

// As many elements of a row as d has lanes, from i on, as floats: plain ones or codes. Exact. For
// Nibbles i is even.
template <class D>
HWY_INLINE hn::Vec<D> load_floats(D d, const float* row, int64_t i) {
  return hn::LoadU(d, row + i);
}
template <class D>
HWY_INLINE hn::Vec<D> load_floats(D d, const Bf16* row, int64_t i) {
  const hn::Rebind<hwy::bfloat16_t, D> narrow;
  return hn::PromoteTo(d, hn::LoadU(narrow, reinterpret_cast<const hwy::bfloat16_t*>(row + i)));
}
template <class D>
HWY_INLINE hn::Vec<D> load_floats(D d, const F16* row, int64_t i) {
  const hn::Rebind<hwy::float16_t, D> narrow;
  return floats_of(d, hn::LoadU(narrow, reinterpret_cast<const hwy::float16_t*>(row + i)));
}
// The bits of an e4m3 code, moved to where f16 has its exponent and fraction, are the value times
// 2^-8, subnormals included; NaN is 480 * 2^-8, which no other code is.
template <class D>
HWY_INLINE hn::Vec<D> load_floats(D d, const E4m3* row, int64_t i) {
  const hn::Rebind<int8_t, D> bytes;
  const hn::Rebind<int16_t, D> words;
  const hn::Rebind<hwy::float16_t, D> halves;
  const auto code =
      hn::PromoteTo(words, hn::LoadU(bytes, reinterpret_cast<const int8_t*>(row + i)));
  const auto bits = hn::And(hn::ShiftLeft<7>(code), hn::Set(words, int16_t{-0x4001}));
  const hn::Vec<D> value = hn::Mul(hn::PromoteTo(d, hn::BitCast(halves, bits)), hn::Set(d, 256.0f));
  const auto is_nan = hn::Eq(hn::Abs(value), hn::Set(d, 480.0f));
  const auto nan = hn::Or(value, hn::Set(d, std::numeric_limits<float>::infinity()));
  return hn::IfThenElse(is_nan, nan, value);
}
// e5m2 is the upper half of f16.
template <class D>
HWY_INLINE hn::Vec<D> load_floats(D d, const E5m2* row, int64_t i) {
  const hn::Rebind<uint8_t, D> bytes;
  const hn::Rebind<uint16_t, D> words;
  const hn::Rebind<hwy::float16_t, D> halves;
  const auto code =
      hn::PromoteTo(words, hn::LoadU(bytes, reinterpret_cast<const uint8_t*>(row + i)));
  return floats_of(d, hn::BitCast(halves, hn::ShiftLeft<8>(code)));
}
template <class D, class Code>
requires std::same_as<Code, int8_t> || std::same_as<Code, uint8_t> HWY_INLINE hn::Vec<D>
load_floats(D d, const Code* row, int64_t i) {
  const hn::Rebind<Code, D> bytes;
  const hn::Rebind<int32_t, D> wide;
  return hn::ConvertTo(d, hn::PromoteTo(wide, hn::LoadU(bytes, row + i)));
}
// A byte 0xHL becomes the word 0x0H0L, that is its two codes in a byte each.
template <class D>
HWY_INLINE hn::Vec<D> load_floats(D d, const Nibbles* row, int64_t i) {
  const hn::Rebind<uint8_t, D> bytes;
  const hn::RepartitionToWide<decltype(bytes)> words;
  const hn::Rebind<uint8_t, decltype(words)> pairs;
  const hn::Rebind<int32_t, D> wide;
  const auto* from = reinterpret_cast<const uint8_t*>(row + i / 2);
  const auto pair = hn::PromoteTo(words, hn::LoadU(pairs, from));
  const auto codes =
      hn::And(hn::Or(pair, hn::ShiftLeft<4>(pair)), hn::Set(words, uint16_t{0x0f0f}));
  return hn::ConvertTo(d, hn::PromoteTo(wide, hn::BitCast(bytes, codes)));
}

template <class T>
HWY_INLINE float float_at(const T* row, int64_t i) {
  return to_float(row[i]);
}
HWY_INLINE float float_at(const Nibbles* row, int64_t i) {
  return static_cast<float>(row[i / 2].pair >> (i % 2 == 0 ? 0 : 4) & 15);
}

}  // namespace
}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // the guard of this instruction set
