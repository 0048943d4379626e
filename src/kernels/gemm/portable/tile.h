// The tiles of the portable matrix-product kernels, the choice among them, and the order in which
// blocks walk the product. Plain functions of sizes, tested on the CPU.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace tessera::kernels {

// A block of the tensor-core kernel: m x n of the product, `k_bytes` of each row of a and b per
// step.
struct MmaTile {
  int m;
  int n;
  int k_bytes;  // bytes of a row in shared memory: 64 or 128, the spans of the swizzles
  int warps_m;  // warps along m and n; each has m / warps_m x n / warps_n
  int warps_n;
  int num_stages;
  int min_blocks;  // blocks that must fit on an SM, which limits their registers

  constexpr int num_warps() const { return warps_m * warps_n; }
  constexpr int num_threads() const { return 32 * num_warps(); }
  constexpr int warp_m() const { return m / warps_m; }
  constexpr int warp_n() const { return n / warps_n; }
  constexpr int stage_bytes() const { return (m + n) * k_bytes; }
  bool operator==(const MmaTile&) const = default;
};

// The tiles are types because nvcc cannot name a kernel by a struct value in a namespace.
// For each 32 bytes of k a warp of 64 x 64 reads 4 KB of shared memory, 32 clocks of an SM, for
// 65,536 multiply-adds, 64 clocks of the tensor cores of sm_80; a warp of 32 x 32 reads for as long
// as it multiplies.
struct MmaLarge {
  static constexpr MmaTile kShape{128, 128, 64, 2, 2, 4, 2};
};
struct MmaSmall {
  static constexpr MmaTile kShape{64, 64, 64, 2, 2, 4, 3};
};
// For few rows of a: many narrow blocks, each with a deep ring, because b is streamed.
struct MmaNarrow {
  static constexpr MmaTile kShape{16, 32, 128, 1, 2, 8, 4};
};

// The most rows of a that the int8 kernel on CUDA cores takes. A thread keeps a sum for each of
// them and each of its columns, beside 128 bytes of codes.
inline constexpr int kDp4aRows = 4;

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
  int walk_n;         // columns that a thread's walk takes together
  int first_deposit;  // the k of a step at which storing the next step begins
  int min_blocks;

  constexpr int num_threads() const { return 32 * warps_m * warps_n; }
  constexpr int strip_m() const { return 16 * warps_m; }
  constexpr int strip_n() const { return 32 * warps_n; }
  constexpr int m() const { return quads_m * strip_m(); }
  constexpr int n() const { return quads_n * strip_n(); }
  // Steps in shared memory: those read between two barriers, one begun early, those being written.
  constexpr int num_steps() const { return 2 * steps_per_barrier + 1; }
  bool operator==(const SimtTile&) const = default;
};

// `walk_n` and `first_deposit` were chosen for the fewest register bank conflicts in the SASS.
struct SimtLarge {  // 128 x 128, 16 x 8 per thread
  static constexpr SimtTile kShape{4, 2, 2, 2, 8, 1, 4, 2, 2};
};
struct SimtWide {  // 128 x 256, 8 x 16 per thread, a barrier every three steps
  static constexpr SimtTile kShape{2, 4, 4, 2, 8, 3, 1, 2, 1};
};
struct SimtSmall {  // 32 x 64, 4 x 4 per thread
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

// All tiles sum k in the same order, so the choice changes no bit of the result and may depend on
// m.
constexpr MmaTile choose_mma_tile(const ProductSize& size, int num_sms) {
  if (size.m <= MmaNarrow::kShape.m) return MmaNarrow::kShape;
  const bool fills = count_tiles(size, MmaLarge::kShape.m, MmaLarge::kShape.n).total() >= num_sms;
  return fills ? MmaLarge::kShape : MmaSmall::kShape;
}
// An SM takes as long for two large tiles at once as for a wide one, or a little longer. The wide
// tile exists only for rows that can be read in vectors.
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

// The tile of a block.
struct TileIndex {
  int m;
  int n;
  int batch;
};

// Blocks run roughly in the order of their numbers. Strips of kStripTiles tiles of m are walked
// along n, so that the blocks in flight form a patch about as wide as it is high: its operands come
// from device memory once and from L2 afterwards.
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
