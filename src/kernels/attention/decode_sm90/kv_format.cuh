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
// Integer codes stay where they are in a word and get an exponent above them: the half so made is
// base + code. Of keys the base is taken off each, or is little beside a sum of codes. Of values it
// is taken off sums: base times the sum of the weights.
// key_operand and value_operand give the A operand of step i of those that four registers of
// ldmatrix hold: 1 step of 16-bit elements, 2 of bytes, 4 of four bits.
using Operand = uint32_t[4];

template <class T_>
struct KvPlain {
  using T = T_;
  static constexpr int kBits = 16;
  static constexpr int kNumScales = 0;  // f16 values beside each row
  static constexpr float value_base(int) { return 0; }

  static __device__ __forceinline__ void key_operand(const Operand& r, int, Operand& a) {
    TESSERA_UNROLL
    for (int j = 0; j < 4; ++j) a[j] = r[j];
  }
  static __device__ __forceinline__ void value_operand(const Operand& r, int i, Operand& a) {
    key_operand(r, i, a);
  }
};

// Formats of bytes: F takes a word apart along a row, and across two.
template <class F>
struct ByteOperands {
  static __device__ __forceinline__ void key_operand(const Operand& r, int i, Operand& a) {
    F::along(r[2 * i], a[0], a[2]);
    F::along(r[2 * i + 1], a[1], a[3]);
  }
  static __device__ __forceinline__ void value_operand(const Operand& r, int i, Operand& a) {
    F::across(r[2 * i], a[0], a[1]);
    F::across(r[2 * i + 1], a[2], a[3]);
  }
};

// A byte under the upper byte of 1024: 1024 + byte.
inline constexpr uint32_t kHalves1024 = 0x64006400u;

// PTX: sub.f16x2.
__device__ __forceinline__ uint32_t sub_halves(uint32_t x, uint32_t y) {
  uint32_t z;
  asm("sub.f16x2 %0, %1, %2;" : "=r"(z) : "r"(x), "r"(y));
  return z;
}

struct KvUint8 : ByteOperands<KvUint8> {
  using T = F16;
  static constexpr int kBits = 8;
  static constexpr int kNumScales = 2;
  static constexpr float value_base(int) { return 1024; }

  // Codes 0 and 1 of a word, and 2 and 3.
  static __device__ __forceinline__ void along(uint32_t word, uint32_t& low, uint32_t& high) {
    low = sub_halves(__byte_perm(word, kHalves1024, 0x5150), kHalves1024);
    high = sub_halves(__byte_perm(word, kHalves1024, 0x5352), kHalves1024);
  }
  // The first code of each row, and the second, with the base.
  static __device__ __forceinline__ void across(uint32_t word, uint32_t& first, uint32_t& second) {
    first = __byte_perm(word, kHalves1024, 0x5250);
    second = __byte_perm(word, kHalves1024, 0x5351);
  }
};

// 128 more than the code, as a byte without a sign.
struct KvInt8 : ByteOperands<KvInt8> {
  using T = F16;
  static constexpr int kBits = 8;
  static constexpr int kNumScales = 1;
  static constexpr float value_base(int) { return 1152; }
  static constexpr uint32_t kHalves1152 = 0x64806480u;

  static __device__ __forceinline__ void along(uint32_t word, uint32_t& low, uint32_t& high) {
    const uint32_t biased = word ^ 0x80808080u;
    low = sub_halves(__byte_perm(biased, kHalves1024, 0x5150), kHalves1152);
    high = sub_halves(__byte_perm(biased, kHalves1024, 0x5352), kHalves1152);
  }
  static __device__ __forceinline__ void across(uint32_t word, uint32_t& first, uint32_t& second) {
    KvUint8::across(word ^ 0x80808080u, first, second);
  }
};

struct KvE4m3 : ByteOperands<KvE4m3> {
  using T = F16;
  static constexpr int kBits = 8;
  static constexpr int kNumScales = 0;
  static constexpr float value_base(int) { return 0; }

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
struct KvE5m2 : ByteOperands<KvE5m2> {
  using T = F16;
  static constexpr int kBits = 8;
  static constexpr int kNumScales = 0;
  static constexpr float value_base(int) { return 0; }

  static __device__ __forceinline__ void along(uint32_t word, uint32_t& low, uint32_t& high) {
    low = __byte_perm(word, 0, 0x1404);
    high = __byte_perm(word, 0, 0x3424);
  }
  static __device__ __forceinline__ void across(uint32_t word, uint32_t& first, uint32_t& second) {
    first = __byte_perm(word, 0, 0x2404);
    second = __byte_perm(word, 0, 0x3414);
  }
};

// PTX: lop3, (word & mask) | bits. Written out, as the compiler makes two instructions of it.
__device__ __forceinline__ uint32_t and_or(uint32_t word, uint32_t mask, uint32_t bits) {
  uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(word), "r"(mask), "r"(bits));
  return result;
}

struct KvInt4 {
  using T = F16;
  static constexpr int kBits = 4;
  static constexpr int kNumScales = 2;
  // Codes 0 and 4, 1 and 5, 2 and 6, 3 and 7 of a word: along a row, or one of each of two rows.
  // Bits 4 to 7 of 64 are worth 1 to 8, the lowest four of 1024 are.
  static constexpr uint32_t kEven = 0x000f000fu, kOdd = 0x00f000f0u, kHalves64 = 0x54005400u;

  // All with a base of 64, which is little beside a sum of codes.
  static constexpr float kKeyBase = 64;
  static __device__ __forceinline__ void take_keys_apart(uint32_t word, uint32_t (&pairs)[4]) {
    pairs[0] = and_or(word << 4, kOdd, kHalves64);
    pairs[1] = and_or(word, kOdd, kHalves64);
    pairs[2] = and_or(word >> 4, kOdd, kHalves64);
    pairs[3] = and_or(word >> 8, kOdd, kHalves64);
  }
  // Even ones with a base of 1024, odd ones of 64: two shifts fewer.
  static constexpr float value_base(int i) { return i % 2 == 0 ? 1024 : 64; }
  static __device__ __forceinline__ void take_values_apart(uint32_t word, uint32_t (&pairs)[4]) {
    const uint32_t upper = word >> 8;
    pairs[0] = and_or(word, kEven, kHalves1024);
    pairs[1] = and_or(word, kOdd, kHalves64);
    pairs[2] = and_or(upper, kEven, kHalves1024);
    pairs[3] = and_or(upper, kOdd, kHalves64);
  }

  static __device__ __forceinline__ void key_operand(const Operand& r, int i, Operand& a) {
    uint32_t upper[4], lower[4];
    take_keys_apart(r[i / 2 * 2], upper);
    take_keys_apart(r[i / 2 * 2 + 1], lower);
    a[0] = upper[i % 2 * 2];
    a[1] = lower[i % 2 * 2];
    a[2] = upper[i % 2 * 2 + 1];
    a[3] = lower[i % 2 * 2 + 1];
  }
  static __device__ __forceinline__ void value_operand(const Operand& r, int i, Operand& a) {
    uint32_t upper[4], lower[4];
    take_values_apart(r[i / 2 * 2], upper);
    take_values_apart(r[i / 2 * 2 + 1], lower);
    a[0] = upper[i % 2 * 2];
    a[1] = upper[i % 2 * 2 + 1];
    a[2] = lower[i % 2 * 2];
    a[3] = lower[i % 2 * 2 + 1];
  }
};

}  // namespace tessera::kernels
