// How keys and values of each format become operands of the tensor cores: codes turn into f16 on
// the way, and what shares a scale is scaled where it costs least (decode_warp.cuh).
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "tessera/core/dtype.h"
#include "tile/unroll.cuh"

namespace tessera::kernels {

// `T` is the type of products. Two forms of what ldmatrix brings are taken apart: words along a
// row, and words that hold two rows (a transposed load), with 16 bits of each.
//
// Integer codes of values stay where they are in a word, and the other bits of a half become 0.
// What is left has no exponent: a subnormal half, code times 2^-24, or times 2^-20 where four bits
// lie above four others. Products of halves are exact in float, so that nothing is lost: a sum is
// worth 1 / unit of what it would be, and is multiplied once. A code with a sign is stored as 128
// more; that base is taken off sums: 128 times the sum of the weights. Keys with a scale a row stay
// integers (integer_keys.cuh).
//
// key_operand and value_operand give the A operand of step i of those that four registers of
// ldmatrix hold: 1 step of 16-bit elements, 2 of bytes, 4 of four bits. integer_operand: 1 step of
// bytes, 2 of four bits, of which the second's are worth 16 times the first's.
using Operand = uint32_t[4];

inline constexpr float kSubnormalUnit = 0x1p24f;

// What the sums of most formats are worth.
struct PlainUnits {
  static constexpr bool kHasIntegerKeys = false;
  static constexpr bool kHasSign = false;
  static constexpr bool kOddHoldsEven = false;  // sums of odd elements include those of even ones
  static constexpr float kValueBase = 0;        // in codes
  static constexpr bool kHasColumns = false;    // keys with a scale and a low for each column
  static constexpr float value_unit(int) { return 1; }
};

template <class T_>
struct KvPlain : PlainUnits {
  using T = T_;
  static constexpr int kBits = 16;
  static constexpr int kNumScales = 0;  // f16 values beside each row

  static __device__ __forceinline__ void key_operand(const Operand& r, int, Operand& a) {
    TESSERA_UNROLL
    for (int j = 0; j < 4; ++j) a[j] = r[j];
  }
  static __device__ __forceinline__ void value_operand(const Operand& r, int i, Operand& a) {
    key_operand(r, i, a);
  }
};

// Formats of bytes: F takes a word apart across two rows, and along one where keys become f16 too.
template <class F>
struct ByteValues {
  static __device__ __forceinline__ void value_operand(const Operand& r, int i, Operand& a) {
    F::across(r[2 * i], a[0], a[1]);
    F::across(r[2 * i + 1], a[2], a[3]);
  }
};
template <class F>
struct ByteOperands : ByteValues<F> {
  static __device__ __forceinline__ void key_operand(const Operand& r, int i, Operand& a) {
    F::along(r[2 * i], a[0], a[2]);
    F::along(r[2 * i + 1], a[1], a[3]);
  }
};

struct ByteCodes : PlainUnits {
  using T = F16;
  static constexpr int kBits = 8;
  static constexpr bool kHasIntegerKeys = true;
  static constexpr float value_unit(int) { return kSubnormalUnit; }

  static __device__ __forceinline__ void integer_operand(const Operand& r, int, Operand& a) {
    TESSERA_UNROLL
    for (int j = 0; j < 4; ++j) a[j] = r[j];
  }
};

struct KvUint8 : ByteCodes, ByteValues<KvUint8> {
  static constexpr int kNumScales = 2;

  // The first code of each row, and the second.
  static __device__ __forceinline__ void across(uint32_t word, uint32_t& first, uint32_t& second) {
    first = __byte_perm(word, 0, 0x4240);
    second = __byte_perm(word, 0, 0x4341);
  }
};

// A value is 128 more than its code, as a byte without a sign.
struct KvInt8 : ByteCodes, ByteValues<KvInt8> {
  static constexpr int kNumScales = 1;
  static constexpr bool kHasSign = true;
  static constexpr float kValueBase = 128;

  static __device__ __forceinline__ void across(uint32_t word, uint32_t& first, uint32_t& second) {
    KvUint8::across(word ^ 0x80808080u, first, second);
  }
};

struct KvE4m3 : PlainUnits, ByteOperands<KvE4m3> {
  using T = F16;
  static constexpr int kBits = 8;
  static constexpr int kNumScales = 0;

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

// The upper byte of a half.
struct KvE5m2 : PlainUnits, ByteOperands<KvE5m2> {
  using T = F16;
  static constexpr int kBits = 8;
  static constexpr int kNumScales = 0;

  static __device__ __forceinline__ void along(uint32_t word, uint32_t& low, uint32_t& high) {
    low = __byte_perm(word, 0, 0x1404);
    high = __byte_perm(word, 0, 0x3424);
  }
  static __device__ __forceinline__ void across(uint32_t word, uint32_t& first, uint32_t& second) {
    first = __byte_perm(word, 0, 0x2404);
    second = __byte_perm(word, 0, 0x3414);
  }
};

struct KvInt4 : PlainUnits {
  using T = F16;
  static constexpr int kBits = 4;
  static constexpr int kNumScales = 2;
  static constexpr bool kHasIntegerKeys = true;
  static constexpr float value_unit(int i) { return i % 2 == 0 ? kSubnormalUnit : 0x1p20f; }

  static __device__ __forceinline__ void integer_operand(const Operand& r, int i, Operand& a) {
    TESSERA_UNROLL
    for (int j = 0; j < 4; ++j) a[j] = r[j] & (i == 0 ? 0x0f0f0f0fu : 0xf0f0f0f0u);
  }
  // Even codes, and odd ones with the even ones below them, which are taken off sums: an
  // instruction less than odd ones alone.
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

// Keys of 32 tokens share a scale and a low for each column: a step of keys. Values are KvInt4.
struct KvInt4Columns : KvInt4 {
  static constexpr int kNumScales = 0;
  static constexpr bool kHasIntegerKeys = false;
  static constexpr bool kHasColumns = true;

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

// The format of values that goes with one of keys.
template <class K>
struct ValuesBeside {
  using Format = K;
};
template <>
struct ValuesBeside<KvInt4Columns> {
  using Format = KvInt4;
};

}  // namespace tessera::kernels
