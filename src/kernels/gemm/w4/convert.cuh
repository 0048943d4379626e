// 4-bit codes in Packing::fragments to operands of the tensor cores.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "tessera/ops/weight_packing.h"
#include "tile/convert.cuh"
#include "tile/fragment.cuh"

namespace tessera::kernels {

// The packing is wgmma's operand: nibble `reg` of half i of a lane's word is element i of register
// `reg` of its fragment.
constexpr bool is_packed_as_operand() {
  for (int step = 0; step < 4; ++step) {
    for (int thread = 0; thread < 128; ++thread) {
      for (int reg = 0; reg < 4; ++reg) {
        for (int i = 0; i < 2; ++i) {
          const tile::TileCoord at = tile::a_fragment_coord(2, thread % 32, reg, i);
          const NibblePlace place =
              fragment_place(thread / 32 * 16 + at.row, 16 * step + at.col, kFragmentCols);
          const int bit = 16 * i + 4 * reg;
          if (place.byte != thread * 16 + step * 4 + bit / 8 || place.shift != bit % 8)
            return false;
        }
      }
    }
  }
  return true;
}
static_assert(is_packed_as_operand());

// Two codes at once. A code is exact as a subnormal: nibble 0 of a half is q times the smallest
// number, nibble 1 is 16 q times it. One multiply-add by a power of two makes (q - zero) * kUnit of
// either, exactly.
template <class T>
struct W4Convert;
template <>
struct W4Convert<Bf16> {
  static constexpr uint32_t kLow = 0x7f007f00;   // 2^127: q * 2^-133 becomes q * 2^-6
  static constexpr uint32_t kHigh = 0x7d007d00;  // 2^123
  static constexpr float kUnit = 0x1p-6f;
  __device__ static uint32_t multiply_add(uint32_t x, uint32_t factor, uint32_t addend) {
    uint32_t y;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(x), "r"(factor), "r"(addend));
    return y;
  }
};
template <>
struct W4Convert<F16> {
  static constexpr uint32_t kLow = 0x78007800;   // 2^15: q * 2^-24 becomes q * 2^-9
  static constexpr uint32_t kHigh = 0x68006800;  // 2^11
  static constexpr float kUnit = 0x1p-9f;
  __device__ static uint32_t multiply_add(uint32_t x, uint32_t factor, uint32_t addend) {
    uint32_t y;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(x), "r"(factor), "r"(addend));
    return y;
  }
};

// The fragment of 16 rows by 16 columns in one word of codes; zero[i] is minus the zero point of
// row i of a lane's two, times kUnit, in both halves.
template <class T>
__device__ __forceinline__ void convert_word(uint32_t word, const uint32_t (&zero)[2],
                                             uint32_t (&a)[4]) {
  using Convert = W4Convert<T>;
  const uint32_t upper = word >> 8;
  a[0] = Convert::multiply_add(word & 0x000f000f, Convert::kLow, zero[0]);
  a[1] = Convert::multiply_add(word & 0x00f000f0, Convert::kHigh, zero[1]);
  a[2] = Convert::multiply_add(upper & 0x000f000f, Convert::kLow, zero[0]);
  a[3] = Convert::multiply_add(upper & 0x00f000f0, Convert::kHigh, zero[1]);
}
template <class T>
__device__ __forceinline__ uint32_t negated_zero(int zero_point) {
  const float value = -W4Convert<T>::kUnit * static_cast<float>(zero_point);
  return tile::pack_pair<T>(value, value);
}

}  // namespace tessera::kernels
