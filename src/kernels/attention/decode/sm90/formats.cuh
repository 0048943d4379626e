// How stored keys and values of each format become operands of the tensor cores: codes turn into
// f16 in registers, and scales are applied where that costs least (warp.cuh).
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "tessera/core/dtype.h"
#include "tessera/ops/kv_format.h"
#include "tile/unroll.cuh"

namespace tessera::kernels::decode_sm90 {

// Every format has a struct Operands<format, Q>, Q being the type of queries and of plain pages.
// `T` is the type of the products. ldmatrix delivers words in two forms: words along a row, and
// words that hold 16 bits of each of two rows (a transposed load).
//
// Integer codes of values stay where they are in a word; the other bits of each half become 0. What
// is left has no exponent: a subnormal half, code * 2^-24, or code * 2^-20 for a nibble above
// another. Products of halves are exact in float, so nothing is lost: a sum is worth 1 / unit of
// what it should be and is multiplied by the unit once. A signed code is stored as code + 128; the
// base of 128 times the sum of the weights is subtracted from the sums. Keys with a scale per row
// stay integers (scores.cuh).
//
// key_operand and value_operand give the A operand of step i of those that four registers of
// ldmatrix hold: 1 step of 16-bit elements, 2 of bytes, 4 of nibbles. integer_operand: 1 step of
// bytes, 2 of nibbles; the nibbles of the second are worth 16 times those of the first.
using Operand = uint32_t[4];

inline constexpr float kSubnormalUnit = 0x1p24f;

// What the table of formats says, as constants; formats below override the rest.
template <KvFormat kFormat, class Q>
struct FormatBase {
  using T = F16;
  static constexpr int kBits = bit_width(pages_dtype(kFormat, dtype_of<Q>));
  static constexpr int kNumScales = static_cast<int>(traits(kFormat).scales_per_row());
  static constexpr bool kHasColumns = traits(kFormat).scales == KvScales::column;
  static constexpr bool kHasIntegerKeys = false;
  static constexpr bool kHasSign = false;
  static constexpr bool kOddHoldsEven = false;  // sums of odd elements include those of even ones
  static constexpr float kValueBase = 0;        // in codes
  static constexpr float value_unit(int) { return 1; }
};

template <KvFormat kFormat, class Q>
struct Operands;

template <class Q>
struct Operands<KvFormat::plain, Q> : FormatBase<KvFormat::plain, Q> {
  using T = Q;

  static __device__ __forceinline__ void key_operand(const Operand& r, int, Operand& a) {
    TESSERA_UNROLL
    for (int j = 0; j < 4; ++j) a[j] = r[j];
  }
  static __device__ __forceinline__ void value_operand(const Operand& r, int i, Operand& a) {
    key_operand(r, i, a);
  }
};

// Formats of bytes: Words takes a word apart across two rows, and along one row if keys become f16
// too.
template <class Words>
struct ByteValues {
  static __device__ __forceinline__ void value_operand(const Operand& r, int i, Operand& a) {
    Words::across(r[2 * i], a[0], a[1]);
    Words::across(r[2 * i + 1], a[2], a[3]);
  }
};
template <class Words>
struct ByteOperands : ByteValues<Words> {
  static __device__ __forceinline__ void key_operand(const Operand& r, int i, Operand& a) {
    Words::along(r[2 * i], a[0], a[2]);
    Words::along(r[2 * i + 1], a[1], a[3]);
  }
};

template <KvFormat kFormat, class Q>
struct ByteCodes : FormatBase<kFormat, Q> {
  static constexpr bool kHasIntegerKeys = true;
  static constexpr float value_unit(int) { return kSubnormalUnit; }

  static __device__ __forceinline__ void integer_operand(const Operand& r, int, Operand& a) {
    TESSERA_UNROLL
    for (int j = 0; j < 4; ++j) a[j] = r[j];
  }
};

// The first code of each row, and the second.
struct UnsignedWords {
  static __device__ __forceinline__ void across(uint32_t word, uint32_t& first, uint32_t& second) {
    first = __byte_perm(word, 0, 0x4240);
    second = __byte_perm(word, 0, 0x4341);
  }
};
template <class Q>
struct Operands<KvFormat::uint8, Q> : ByteCodes<KvFormat::uint8, Q>, ByteValues<UnsignedWords> {};

// Code + 128 as an unsigned byte.
struct SignedWords {
  static __device__ __forceinline__ void across(uint32_t word, uint32_t& first, uint32_t& second) {
    UnsignedWords::across(word ^ 0x80808080u, first, second);
  }
};
template <class Q>
struct Operands<KvFormat::int8, Q> : ByteCodes<KvFormat::int8, Q>, ByteValues<SignedWords> {
  static constexpr bool kHasSign = true;
  static constexpr float kValueBase = 128;
};

struct E4m3Words {
  // PTX: cvt.rn.f16x2.e4m3x2.
  static __device__ __forceinline__ void along(uint32_t word, uint32_t& low, uint32_t& high) {
    asm("{\n.reg .b16 l, h;\nmov.b32 {l, h}, %2;\n"
        "cvt.rn.f16x2.e4m3x2 %0, l;\ncvt.rn.f16x2.e4m3x2 %1, h;\n}"
        : "=r"(low), "=r"(high)
        : "r"(word));
  }
  static __device__ __forceinline__ void across(uint32_t word, uint32_t& first, uint32_t& second) {
    along(__byte_perm(word, 0, 0x3120), first, second);
  }
};
template <class Q>
struct Operands<KvFormat::e4m3, Q> : FormatBase<KvFormat::e4m3, Q>, ByteOperands<E4m3Words> {};

// An e5m2 is the upper byte of a half.
struct E5m2Words {
  static __device__ __forceinline__ void along(uint32_t word, uint32_t& low, uint32_t& high) {
    low = __byte_perm(word, 0, 0x1404);
    high = __byte_perm(word, 0, 0x3424);
  }
  static __device__ __forceinline__ void across(uint32_t word, uint32_t& first, uint32_t& second) {
    first = __byte_perm(word, 0, 0x2404);
    second = __byte_perm(word, 0, 0x3414);
  }
};
template <class Q>
struct Operands<KvFormat::e5m2, Q> : FormatBase<KvFormat::e5m2, Q>, ByteOperands<E5m2Words> {};

template <class Q>
struct Operands<KvFormat::int4_token, Q> : FormatBase<KvFormat::int4_token, Q> {
  static constexpr bool kHasIntegerKeys = true;
  static constexpr float value_unit(int i) { return i % 2 == 0 ? kSubnormalUnit : 0x1p20f; }

  static __device__ __forceinline__ void integer_operand(const Operand& r, int i, Operand& a) {
    TESSERA_UNROLL
    for (int j = 0; j < 4; ++j) a[j] = r[j] & (i == 0 ? 0x0f0f0f0fu : 0xf0f0f0f0u);
  }
  // Even codes, and odd codes with the even ones still below them, which are subtracted from the
  // sums: one instruction less than odd codes alone.
  static constexpr bool kOddHoldsEven = true;
  static __device__ __forceinline__ void value_operand(const Operand& r, int i, Operand& a) {
    TESSERA_UNROLL
    for (int j = 0; j < 2; ++j) {
      const uint32_t word = r[i / 2 * 2 + j];
      a[2 * j + 1] = __byte_perm(word, 0, i % 2 == 0 ? 0x4240 : 0x4341);
      a[2 * j] = (i % 2 == 0 ? word : a[2 * j + 1]) & 0x000f000fu;
    }
  }
};

// Keys alone: 32 tokens, a step, share a scale and a low for each column.
template <class Q>
struct Operands<KvFormat::int4, Q> : FormatBase<KvFormat::int4, Q> {
  // Codes 0 and 4, 1 and 5, 2 and 6, 3 and 7 of a word.
  static __device__ __forceinline__ void take_apart(uint32_t word, uint32_t (&pairs)[4]) {
    constexpr uint32_t kEven = 0x000f000fu, kOdd = 0x00f000f0u;
    const uint32_t upper = word >> 8;
    pairs[0] = word & kEven;
    pairs[1] = word & kOdd;
    pairs[2] = upper & kEven;
    pairs[3] = upper & kOdd;
  }
  static __device__ __forceinline__ void key_operand(const Operand& r, int i, Operand& a) {
    uint32_t upper[4], lower[4];
    take_apart(r[i / 2 * 2], upper);
    take_apart(r[i / 2 * 2 + 1], lower);
    a[0] = upper[i % 2 * 2];
    a[1] = lower[i % 2 * 2];
    a[2] = upper[i % 2 * 2 + 1];
    a[3] = lower[i % 2 * 2 + 1];
  }
};

}  // namespace tessera::kernels::decode_sm90
