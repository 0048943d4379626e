// Where a code of a packed weight lies: the definition of every Packing but `rows`.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace tessera {

// Packing::fragments. An i4 weight [n, k], n and k multiples of 64, is a sequence of blocks of 64 x
// 64, those of the first 64 rows first. A block is what a warpgroup multiplies in four steps of 16
// along k, with the weight as the operand in registers:
//
//   block   2048 bytes   4 warps, 16 rows each
//   warp     512 bytes   32 lanes
//   lane      16 bytes   4 words, one for each step of k
//   word      32 bits    8 codes: the low half holds an even column, the high half the next one;
//                        nibble r of a half is register r of the operand
//
// so that a lane loads 16 bytes for 32 codes, and one AND yields a pair of codes where the register
// wants it. Codes are unsigned: without zero points 8 is added, so that the zero point is 8. Scales
// and zero points with groups are [n / 64, k / group, 64], in the memory of [n, k / group]. Scales
// are f32, bf16 or f16. A symmetric weight in groups of 128 takes 4.125 bits an element with 16-bit
// scales, and 4.25 with f32.
inline constexpr int64_t kFragmentRows = 64;
inline constexpr int64_t kFragmentCols = 64;
inline constexpr int64_t kFragmentBlockBytes = 2048;
inline constexpr int kFragmentZero = 8;  // zero point of codes that had none

struct NibblePlace {
  int64_t byte;
  int shift;  // 0 or 4
};

constexpr NibblePlace fragment_place(int64_t row, int64_t col, int64_t k) {
  const int64_t block = row / 64 * (k / 64) + col / 64;
  const int64_t warp = row % 64 / 16, step = col % 64 / 16;
  const int64_t lane = row % 8 * 4 + col % 8 / 2;
  const int64_t reg = row % 16 / 8 + 2 * (col % 16 / 8);
  return {block * kFragmentBlockBytes + warp * 512 + lane * 16 + step * 4 + col % 2 * 2 + reg / 2,
          static_cast<int>(4 * (reg % 2))};
}

// The index of the scale of (row, group), of num_groups in a row.
constexpr int64_t fragment_scale(int64_t row, int64_t group, int64_t num_groups) {
  return (row / 64 * num_groups + group) * 64 + row % 64;
}

}  // namespace tessera
