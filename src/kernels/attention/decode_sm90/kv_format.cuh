// How keys and values of each format become operands of the tensor cores: codes turn into f16 on
// the way, and what shares a scale is scaled where it costs least (decode_warp.cuh).
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "tessera/core/dtype.h"

namespace tessera::kernels {

// `T` is the type of products. Two forms of what ldmatrix brings are taken apart: words along a
// row, and words that hold two rows (a transposed load), with 16 bits of each.
//
// Integer codes stay where they are in a word and get an exponent above them: the half so made is
// base + code. Taking the base off each of them would cost as much as all the rest, so it is taken
// off sums, by products with as many bases. base(0) and base(1) are those of the first and the
// second half that a word gives; kMinusBase0 and 1 are their negatives as pairs of halves.
template <class T_>
struct KvPlain {
  using T = T_;
  static constexpr int kBits = 16;
  static constexpr int kNumScales = 0;  // f16 values beside each row
  static constexpr float base(int) { return 0; }
  static constexpr uint32_t kMinusBase0 = 0, kMinusBase1 = 0;
};

// A byte under the upper byte of 1024: 1024 + byte.
inline constexpr uint32_t kHalves1024 = 0x64006400u;

struct KvUint8 {
  using T = F16;
  static constexpr int kBits = 8;
  static constexpr int kNumScales = 2;
  static constexpr float base(int) { return 1024; }
  static constexpr uint32_t kMinusBase0 = 0xe400e400u, kMinusBase1 = 0xe400e400u;

  // Codes 0 and 1 of a word, and 2 and 3.
  static __device__ __forceinline__ void along(uint32_t word, uint32_t& low, uint32_t& high) {
    low = __byte_perm(word, kHalves1024, 0x5150);
    high = __byte_perm(word, kHalves1024, 0x5352);
  }
  // The first code of each row, and the second.
  static __device__ __forceinline__ void across(uint32_t word, uint32_t& first, uint32_t& second) {
    first = __byte_perm(word, kHalves1024, 0x5250);
    second = __byte_perm(word, kHalves1024, 0x5351);
  }
};

// 128 more than the code, as a byte without a sign.
struct KvInt8 {
  using T = F16;
  static constexpr int kBits = 8;
  static constexpr int kNumScales = 1;
  static constexpr float base(int) { return 1152; }
  static constexpr uint32_t kMinusBase0 = 0xe480e480u, kMinusBase1 = 0xe480e480u;

  static __device__ __forceinline__ void along(uint32_t word, uint32_t& low, uint32_t& high) {
    KvUint8::along(word ^ 0x80808080u, low, high);
  }
  static __device__ __forceinline__ void across(uint32_t word, uint32_t& first, uint32_t& second) {
    KvUint8::across(word ^ 0x80808080u, first, second);
  }
};

struct KvE4m3 {
  using T = F16;
  static constexpr int kBits = 8;
  static constexpr int kNumScales = 0;
  static constexpr float base(int) { return 0; }
  static constexpr uint32_t kMinusBase0 = 0, kMinusBase1 = 0;

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
struct KvE5m2 {
  using T = F16;
  static constexpr int kBits = 8;
  static constexpr int kNumScales = 0;
  static constexpr float base(int) { return 0; }
  static constexpr uint32_t kMinusBase0 = 0, kMinusBase1 = 0;

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
  static constexpr float base(int i) { return i == 0 ? 1024 : 64; }
  static constexpr uint32_t kMinusBase0 = 0xe400e400u, kMinusBase1 = 0xd400d400u;

  // Codes 0 and 4, 1 and 5, 2 and 6, 3 and 7 of a word: along a row, or one of each of two rows.
  // The lowest bits of 1024 are worth 1, the next four of 64.
  static __device__ __forceinline__ void take_apart(uint32_t word, uint32_t (&pairs)[4]) {
    constexpr uint32_t kEven = 0x000f000fu, kOdd = 0x00f000f0u, kHalves64 = 0x54005400u;
    const uint32_t upper = word >> 8;
    pairs[0] = and_or(word, kEven, kHalves1024);
    pairs[1] = and_or(word, kOdd, kHalves64);
    pairs[2] = and_or(upper, kEven, kHalves1024);
    pairs[3] = and_or(upper, kOdd, kHalves64);
  }
};

}  // namespace tessera::kernels
