// Operand tiles of WGMMA in shared memory: the address of an element, and the matrix descriptors.
// SPDX-License-Identifier: MIT
//
// A tile is a sequence of slabs, each span_bytes(swizzle) wide with all rows of the tile: exactly
// what one TMA box of that width writes. A wider tile takes several boxes, one after the other.
//
//   K-major    rows are m or n, a slab holds span bytes of k.
//   MN-major   rows are k, a slab holds span bytes of m or n. 16-bit types alone.
//
// A tile starts at a multiple of repeat_bytes(swizzle), and its rows are a multiple of 8.
#pragma once

#include <cstdint>

#include "tile/swizzle.cuh"

namespace tessera::tile {

// The offset in the tile of byte `inner` of row `row`.
constexpr uint32_t slab_offset(Swizzle swizzle, int num_rows, int row, int inner) {
  const int span = span_bytes(swizzle);
  const int slab = inner / span;
  return static_cast<uint32_t>(slab * num_rows * span) +
         swizzled(swizzle, static_cast<uint32_t>(row * span + inner % span));
}

// PTX: wgmma, matrix descriptor. Fields are in units of 16 bytes.
constexpr uint64_t make_descriptor(uint32_t address, uint32_t leading_bytes, uint32_t stride_bytes,
                                   Swizzle swizzle) {
  constexpr uint64_t kModes[] = {0, 3, 2, 1};  // the field's values for none, b32, b64, b128
  return static_cast<uint64_t>((address & 0x3ffff) >> 4) |
         static_cast<uint64_t>((leading_bytes & 0x3ffff) >> 4) << 16 |
         static_cast<uint64_t>((stride_bytes & 0x3ffff) >> 4) << 32 |
         kModes[static_cast<int>(swizzle)] << 62;
}

// The descriptor advanced by `bytes`, a multiple of 16.
constexpr uint64_t advance(uint64_t descriptor, uint32_t bytes) {
  return descriptor + (bytes >> 4);
}

// The K-major operand that starts at the tile's first row; `num_rows` is the height of its slabs.
// The second pitch, from 8 rows to the next 8, is implied: they are contiguous.
template <Swizzle kSwizzle>
constexpr uint64_t k_major_descriptor(uint32_t tile, int num_rows) {
  const uint32_t slab_bytes = static_cast<uint32_t>(num_rows * span_bytes(kSwizzle));
  // With a swizzle a step of k stays inside a slab, and the pitch of slabs is not read.
  const uint32_t leading_bytes = kSwizzle == Swizzle::none ? slab_bytes : 16;
  return make_descriptor(tile, leading_bytes, 8 * span_bytes(kSwizzle), kSwizzle);
}

// How far to advance a K-major descriptor to `k_bytes` along k, a multiple of 32.
template <Swizzle kSwizzle>
constexpr uint32_t k_major_advance(int num_rows, int k_bytes) {
  const int span = span_bytes(kSwizzle);
  return static_cast<uint32_t>(k_bytes / span * num_rows * span + k_bytes % span);
}

// The MN-major operand of a tile of `num_k` rows; slabs follow each other along m or n.
template <Swizzle kSwizzle>
constexpr uint64_t mn_major_descriptor(uint32_t tile, int num_k) {
  const uint32_t slab_bytes = static_cast<uint32_t>(num_k * span_bytes(kSwizzle));
  const uint32_t group_bytes = static_cast<uint32_t>(8 * span_bytes(kSwizzle));  // 8 rows of k
  // Without a swizzle the instruction exchanges the meaning of the two pitches.
  return kSwizzle == Swizzle::none ? make_descriptor(tile, group_bytes, slab_bytes, kSwizzle)
                                   : make_descriptor(tile, slab_bytes, group_bytes, kSwizzle);
}

// How far to advance an MN-major descriptor to row `k`, a multiple of 16.
template <Swizzle kSwizzle>
constexpr uint32_t mn_major_advance(int k) {
  return static_cast<uint32_t>(k * span_bytes(kSwizzle));
}

}  // namespace tessera::tile
