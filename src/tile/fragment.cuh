// Which element of a tile each register of a thread holds, and how accumulators become operands.
// SPDX-License-Identifier: MIT
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "tessera/core/dtype.h"
#include "tile/unroll.cuh"

namespace tessera::tile {

struct TileCoord {
  int row;
  int col;
};

// Accumulator `i` of 4 of mma.sync's 16x8 tile.
constexpr TileCoord mma_accumulator_coord(int lane, int i) {
  return {lane / 4 + 8 * (i / 2), 2 * (lane % 4) + i % 2};
}

// Accumulator `i` of n / 2 of wgmma's 64xn tile; `thread` counts within the warpgroup. Each warp
// holds 16 rows, as mma.sync tiles side by side.
constexpr TileCoord wgmma_accumulator_coord(int thread, int i) {
  const TileCoord in_warp = mma_accumulator_coord(thread % 32, i % 4);
  return {16 * (thread / 32) + in_warp.row, 8 * (i / 4) + in_warp.col};
}

// Element `i` of register `reg` of 4 of an A fragment: 16 rows (of m) by 32 bytes (of k). An
// element takes 1, 2 or 4 bytes. wgmma's A in registers is this for each warp's 16 rows.
constexpr TileCoord a_fragment_coord(int element_bytes, int lane, int reg, int i) {
  const int per_register = 4 / element_bytes;
  return {lane / 4 + 8 * (reg % 2), per_register * (lane % 4 + 4 * (reg / 2)) + i};
}

// Element `i` of register `reg` of 2 of a B fragment of mma.sync: 8 rows (of n) by 32 bytes (of k).
constexpr TileCoord b_fragment_coord(int element_bytes, int lane, int reg, int i) {
  const int per_register = 4 / element_bytes;
  return {lane / 4, per_register * (lane % 4 + 4 * reg) + i};
}

// The row, and the byte within it, whose address a lane gives to ldmatrix or stmatrix.
struct MatrixRow {
  int row;
  int byte;
};

// x4 over 16 rows by 32 bytes: an A fragment, or 16x16 accumulators packed to 16 bits.
constexpr MatrixRow matrix_row_16x32(int lane) { return {lane % 16, 16 * (lane / 16)}; }

// x2 over 8 rows by 32 bytes: a B fragment. Lanes 16 to 31 repeat, as their addresses are not used.
constexpr MatrixRow matrix_row_8x32(int lane) { return {lane % 8, 16 * (lane / 8 % 2)}; }

// x4 over 16 rows by 32 bytes as two B fragments: registers 0, 1 hold rows 0-7; 2, 3 hold rows
// 8-15.
constexpr MatrixRow matrix_row_two_8x32(int lane) {
  return {lane % 8 + 8 * (lane / 16), 16 * (lane / 8 % 2)};
}

// x2.trans over 16 rows of k by 16 bytes of n: a 16-bit B fragment of a matrix stored [k, n].
constexpr MatrixRow matrix_row_16x16_trans(int lane) { return {lane % 16, 0}; }

// Two floats rounded to nearest even into one register, `low` in the lower half.
template <class T>
__device__ __forceinline__ uint32_t pack_pair(float low, float high);
template <>
__device__ __forceinline__ uint32_t pack_pair<Bf16>(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
template <>
__device__ __forceinline__ uint32_t pack_pair<F16>(float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

// Four floats rounded to e4m3, saturating, the first in the lowest byte.
__device__ __forceinline__ uint32_t pack_e4m3(float x0, float x1, float x2, float x3) {
  uint32_t word;
  asm("{\n.reg .b16 low, high;\n"
      "cvt.rn.satfinite.e4m3x2.f32 low, %2, %1;\n"
      "cvt.rn.satfinite.e4m3x2.f32 high, %4, %3;\n"
      "mov.b32 %0, {low, high};\n}"
      : "=r"(word)
      : "f"(x0), "f"(x1), "f"(x2), "f"(x3));
  return word;
}

// Columns 16 * step to 16 * step + 15 of an accumulator as the A operand of a second product whose
// k runs along them. No data crosses threads: for 16-bit types the two layouts agree.
template <class T, int kRegisters>
__device__ __forceinline__ void accumulator_to_a(const float (&d)[kRegisters], int step,
                                                 uint32_t (&a)[4]) {
  static_assert(sizeof(T) == 2 && kRegisters % 8 == 0);
  TESSERA_UNROLL
  for (int reg = 0; reg < 4; ++reg) {
    a[reg] = pack_pair<T>(d[8 * step + 2 * reg], d[8 * step + 2 * reg + 1]);
  }
}

}  // namespace tessera::tile
