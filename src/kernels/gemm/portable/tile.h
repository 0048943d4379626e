// The shapes of the portable matrix-product kernels, the choice between them, and the order in
// which blocks walk the product. Plain functions of sizes, tested on the CPU.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace tessera::kernels {

// A block of the tensor-core kernel: m x n of the product, `k_bytes` of each row of a and b a step.
struct MmaTile {
  int m;
  int n;
  int k_bytes;  // of a row in shared memory: 64 or 128, the spans of the swizzles
  int warps_m;  // warps along m and n; each has m / warps_m x n / warps_n
  int warps_n;
  int num_stages;
  int min_blocks;  // that shall fit on an SM by their registers

  constexpr int num_warps() const { return warps_m * warps_n; }
  constexpr int num_threads() const { return 32 * num_warps(); }
  constexpr int warp_m() const { return m / warps_m; }
  constexpr int warp_n() const { return n / warps_n; }
  constexpr int stage_bytes() const { return (m + n) * k_bytes; }
  bool operator==(const MmaTile&) const = default;
};

// The shapes are types because nvcc cannot name a kernel by a struct value in a namespace.
// A warp of 64 x 64 reads 4 KB of shared memory, 32 clocks of an SM, for 65,536 multiply-adds, 64
// clocks of the tensor cores of sm_80; a warp of 32 x 32 reads for as long as it multiplies.
struct MmaLarge {
  static constexpr MmaTile kShape{128, 128, 64, 2, 2, 4, 2};
};
struct MmaSmall {
  static constexpr MmaTile kShape{64, 64, 64, 2, 2, 4, 3};
};
// A few rows of a: b is streamed, so many narrow blocks, each with a deep ring.
struct MmaNarrow {
  static constexpr MmaTile kShape{16, 32, 128, 1, 2, 8, 4};
};

// A block of the kernel on CUDA cores. A warp is 4 x 8 lanes, each with quads of 4 rows and 4
// columns: `quads_m` x `quads_n` blocks of 16 x 32 a warp, spread over the tile so that block q of
// all warps is one strip of it.
struct SimtTile {
  int quads_m;
  int quads_n;
  int warps_m;
  int warps_n;
  int k;  // a step, a multiple of 8
  int steps_per_barrier;
  int walk_n;         // columns of a thread that its walk takes together
  int first_deposit;  // the k of a step at which the first of the next is stored
  int min_blocks;

  constexpr int num_threads() const { return 32 * warps_m * warps_n; }
  constexpr int strip_m() const { return 16 * warps_m; }
  constexpr int strip_n() const { return 32 * warps_n; }
  constexpr int m() const { return quads_m * strip_m(); }
  constexpr int n() const { return quads_n * strip_n(); }
  // In shared memory: those being read between two barriers, one begun early, those being written.
  constexpr int num_steps() const { return 2 * steps_per_barrier + 1; }
  bool operator==(const SimtTile&) const = default;
};

// `walk_n` and `first_deposit` are what leaves the fewest conflicts of register banks; the machine
// code tells.
struct SimtLarge {  // 128 x 128, 16 x 8 a thread
  static constexpr SimtTile kShape{4, 2, 2, 2, 8, 1, 4, 2, 2};
};
struct SimtWide {  // 128 x 256, 8 x 16 a thread, a barrier every three steps
  static constexpr SimtTile kShape{2, 4, 4, 2, 8, 3, 1, 2, 1};
};
struct SimtSmall {  // 32 x 64, 4 x 4 a thread
  static constexpr SimtTile kShape{1, 1, 2, 2, 16, 1, 1, 2, 4};
};

// `batch` products of m x n.
struct ProductSize {
  int64_t m;
  int64_t n;
  int64_t batch;
};

struct TileCounts {
  int64_t m;
  int64_t n;
  int64_t batch;

  constexpr int64_t total() const { return m * n * batch; }
};

constexpr TileCounts count_tiles(const ProductSize& size, int tile_m, int tile_n) {
  return {(size.m + tile_m - 1) / tile_m, (size.n + tile_n - 1) / tile_n, size.batch};
}

// No kernel sums parts of k in another order than another, so the choice changes no bit of the
// result and may depend on m.
constexpr MmaTile choose_mma_tile(const ProductSize& size, int num_sms) {
  if (size.m <= MmaNarrow::kShape.m) return MmaNarrow::kShape;
  const bool fills = count_tiles(size, MmaLarge::kShape.m, MmaLarge::kShape.n).total() >= num_sms;
  return fills ? MmaLarge::kShape : MmaSmall::kShape;
}
// An SM takes as long for two large tiles at once as for a wide one, or a little longer. Rows that
// vectors cannot read have no wide tile.
constexpr SimtTile choose_simt_tile(const ProductSize& size, int num_sms, bool is_aligned) {
  const auto tiles_of = [&](SimtTile tile) {
    return count_tiles(size, tile.m(), tile.n()).total();
  };
  const int64_t num_large = tiles_of(SimtLarge::kShape);
  if (num_large < num_sms) return SimtSmall::kShape;
  const int64_t rounds_large = (num_large + 2 * num_sms - 1) / (2 * num_sms);
  const int64_t rounds_wide = (tiles_of(SimtWide::kShape) + num_sms - 1) / num_sms;
  return is_aligned && rounds_wide <= rounds_large ? SimtWide::kShape : SimtLarge::kShape;
}

// A block's tile.
struct TileIndex {
  int m;
  int n;
  int batch;
};

// Blocks run about in the order of their numbers. Strips of kStripTiles tiles of m are walked along
// n, so that the blocks in flight form a patch about as wide as it is high: its operands are read
// from device memory once and from L2 by the rest.
inline constexpr int kStripTiles = 8;
constexpr TileIndex tile_at(int block, int tiles_m, int tiles_n) {
  const int tiles = tiles_m * tiles_n;
  const int batch = block / tiles;
  const int in_product = block - batch * tiles;
  const int strip = in_product / (kStripTiles * tiles_n);
  const int in_strip = in_product - strip * kStripTiles * tiles_n;
  const int tiles_left = tiles_m - strip * kStripTiles;
  const int height = tiles_left < kStripTiles ? tiles_left : kStripTiles;
  return {strip * kStripTiles + in_strip % height, in_strip / height, batch};
}

}  // namespace tessera::kernels
