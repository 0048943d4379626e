// The shared-memory swizzles of TMA and WGMMA, as functions on byte offsets.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace tessera::tile {

// The name is the width of a row of the pattern in bytes. Rows follow each other in shared memory;
// within a row, 16-byte chunks are exchanged so that the same chunk of 8 consecutive rows falls
// into different banks.
enum class Swizzle : uint8_t { none, b32, b64, b128 };

// Bytes of a row: the innermost extent of a TMA box, and of one slab of a WGMMA operand. Without a
// swizzle a slab is one 16-byte column.
constexpr int span_bytes(Swizzle swizzle) { return 16 << static_cast<int>(swizzle); }

// The swizzle whose rows are `bytes` wide: 16, 32, 64 or 128.
constexpr Swizzle swizzle_of_span(int bytes) {
  return bytes == 128  ? Swizzle::b128
         : bytes == 64 ? Swizzle::b64
         : bytes == 32 ? Swizzle::b32
                       : Swizzle::none;
}

// The pattern repeats after this many bytes, and the tile must be aligned to them.
constexpr int repeat_bytes(Swizzle swizzle) {
  return swizzle == Swizzle::none ? 128 : 8 * span_bytes(swizzle);
}

// The swizzled place of the byte at `offset` from an aligned start: bits 4 to 6 are xored with bits
// 7 to 9, as many of them as a row has chunks. Applying it twice gives the offset back.
constexpr uint32_t swizzled(Swizzle swizzle, uint32_t offset) {
  const uint32_t chunk_mask = static_cast<uint32_t>(span_bytes(swizzle) / 16 - 1);
  return offset ^ (((offset >> 7) & chunk_mask) << 4);
}

}  // namespace tessera::tile
