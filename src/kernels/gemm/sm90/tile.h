// The shapes the Hopper kernel is compiled for, and how it lays out shared memory.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace tessera::kernels {

// A block computes kRows x kCols of the product. One warpgroup holds 64 rows in registers, so a
// block has one or two of them, and one more warp that feeds them. A stage of the ring holds
// kSlabs slabs of 64 elements of k (128 bytes, the width of the swizzle) of both operands.
// With kSplits of 2 two blocks, a cluster, share one tile: each multiplies its half of k.
template <int kWarpgroups_, int kCols_, int kSlabs_, int kSplits_ = 1>
struct Sm90Tile {
  static constexpr int kWarpgroups = kWarpgroups_;
  static constexpr int kRows = 64 * kWarpgroups_;
  static constexpr int kCols = kCols_;
  static constexpr int kSlabs = kSlabs_;
  static constexpr int kBlockK = 64 * kSlabs_;
  static constexpr int kSplits = kSplits_;
  // A scheduler's registers go to the warps it has in turn: two warpgroups of consumers get enough
  // only if a whole warpgroup of producers gives its share away.
  static constexpr bool kMovesRegisters = kWarpgroups_ == 2;
  // Whether results may pass through shared memory, to be stored by the copy engine.
  static constexpr bool kStages = kWarpgroups_ == 2 && kSplits_ == 1;
  static constexpr int kThreads = 128 * kWarpgroups_ + (kMovesRegisters ? 128 : 32);
  static_assert(kCols % 16 == 0 && kCols <= 256);
};

// Every shape that is compiled; plan.h chooses among them. One warpgroup serves few rows: its
// columns are cut so that the tiles of common layers fill the SMs once. Two serve many rows.
template <class... Tiles>
struct Sm90TileList {};
using Sm90Tiles1 =
    Sm90TileList<Sm90Tile<1, 32, 2>, Sm90Tile<1, 32, 4>, Sm90Tile<1, 48, 2>, Sm90Tile<1, 48, 4>,
                 Sm90Tile<1, 64, 2>, Sm90Tile<1, 64, 4>, Sm90Tile<1, 96, 2>, Sm90Tile<1, 112, 1>,
                 Sm90Tile<1, 112, 2>, Sm90Tile<1, 128, 2>, Sm90Tile<1, 192, 1>>;
using Sm90Tiles2 = Sm90TileList<Sm90Tile<2, 32, 2>, Sm90Tile<2, 48, 2>, Sm90Tile<2, 64, 2>,
                                Sm90Tile<2, 96, 1>, Sm90Tile<2, 128, 1>, Sm90Tile<2, 160, 1>,
                                Sm90Tile<2, 192, 1>, Sm90Tile<2, 224, 1>, Sm90Tile<2, 256, 1>>;
// For what would leave SMs idle, or short of what they can take in, otherwise.
using Sm90TilesSplit =
    Sm90TileList<Sm90Tile<2, 64, 1, 2>, Sm90Tile<2, 96, 1, 2>, Sm90Tile<2, 128, 1, 2>>;

inline constexpr int kSlabBytes = 128;  // of one row of one slab
inline constexpr int kMaxStages = 24;
inline constexpr int kFirstAPieces = 4;  // of 16 bytes, of A, that a consumer loads by hand
// Each consumer warp stages 16 rows of out at a time, in two buffers that take turns.
inline constexpr int kStoreBytes = 16 * 128;
inline constexpr int kStoreBuffers = 2;

// The columns of one staged box: the widest that divides the columns of a tile's results.
constexpr int store_box_cols(int out_cols) {
  return out_cols % 64 == 0 ? 64 : out_cols % 32 == 0 ? 32 : 16;
}

// Offsets in shared memory. The slots of A come first: where they hold fewer than 64 rows, wgmma
// reads on into what follows, and what it makes of that belongs to rows that nobody stores.
struct Sm90Layout {
  int a_slot_bytes;
  int b_slot_bytes;
  int num_stages;
  int store_bytes;  // of all warps; 0: results go out straight from registers

  constexpr int a(int stage) const { return store_bytes + stage * a_slot_bytes; }
  constexpr int b(int stage) const {
    return store_bytes + num_stages * a_slot_bytes + stage * b_slot_bytes;
  }
  constexpr int barriers() const { return b(num_stages); }
  constexpr int size() const { return barriers() + 2 * 8 * kMaxStages; }
};

}  // namespace tessera::kernels
