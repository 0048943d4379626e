// A tensor map: what a copy by TMA knows of a tensor in global memory. It fills the 128 bytes that
// a program takes from cuTensorMapEncodeTiled and does not look into.
// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>

#include "tests/emulator/types.h"

namespace tessera::emulator {

// 16-byte pieces of a row of shared memory change places, so that rows of a tile and columns of it
// both lie in different banks. The pattern depends on the address alone.
enum class Swizzle : uint8_t { none, bytes32, bytes64, bytes128 };

constexpr uint32_t span_of(Swizzle swizzle) { return 16u << static_cast<int>(swizzle); }

// Bits 4 to 6 of an address are combined with bits 7 to 9, or with fewer of them.
constexpr uint32_t swizzled(uint32_t address, Swizzle swizzle) {
  const uint32_t mask = span_of(swizzle) / 16 - 1;
  return address ^ ((address >> 7 & mask) << 4);
}

struct TensorMap {
  static constexpr int kMaxRank = 5;

  uint64_t base;
  std::array<uint64_t, kMaxRank> dims;         // in elements, the innermost first
  std::array<uint64_t, kMaxRank - 1> strides;  // in bytes, of the dimensions but the innermost
  std::array<uint32_t, kMaxRank> box;          // in elements
  uint8_t rank;
  uint8_t element_bytes;
  Swizzle swizzle;
  Type type;

  uint32_t box_bytes() const {
    uint32_t bytes = element_bytes;
    for (int i = 0; i < rank; ++i) bytes *= box[static_cast<size_t>(i)];
    return bytes;
  }
};
static_assert(sizeof(TensorMap) <= 128);

}  // namespace tessera::emulator
