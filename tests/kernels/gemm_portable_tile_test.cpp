// How the portable matrix product is cut into tiles, and which arguments its rows take.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <set>
#include <tuple>
#include <vector>

#include "kernels/gemm/portable/launch.h"
#include "kernels/gemm/portable/tile.h"

namespace tessera::kernels {
namespace {

constexpr int kNumSms = 132;

// What cp.async, ldmatrix and the swizzle need of a shape, and what a block may use everywhere from
// sm_80 up: 99 KB of shared memory on the smallest.
TEST(MmaTiles, FitTheInstructionsAndEveryChip) {
  for (const MmaTile& tile : {MmaLarge::kShape, MmaSmall::kShape, MmaNarrow::kShape}) {
    SCOPED_TRACE(testing::Message() << tile.m << " x " << tile.n);
    EXPECT_EQ(tile.warp_m() % 16, 0);
    EXPECT_EQ(tile.warp_n() % 16, 0);
    EXPECT_TRUE(tile.k_bytes == 64 || tile.k_bytes == 128);
    const int rows_at_once = tile.num_threads() / (tile.k_bytes / 16);
    EXPECT_EQ(tile.m % rows_at_once, 0);
    EXPECT_EQ(tile.n % rows_at_once, 0);
    EXPECT_LE(tile.num_stages * tile.stage_bytes(), 99 * 1024);
    EXPECT_LE(tile.m * tile.n * 4, 99 * 1024);
    EXPECT_LE(tile.min_blocks * tile.num_threads() * 32, 65536);
  }
}

TEST(SimtTiles, FitEveryChip) {
  for (const SimtTile& tile : {SimtLarge::kShape, SimtWide::kShape, SimtSmall::kShape}) {
    SCOPED_TRACE(testing::Message() << tile.m() << " x " << tile.n() << " x " << tile.k);
    EXPECT_LE(tile.min_blocks * tile.num_steps() * tile.k * (tile.m() + tile.n() + 4) * 4,
              99 * 1024);
    EXPECT_LE(tile.strip_m() * tile.n() * 4, 99 * 1024);
    EXPECT_EQ(4 * tile.quads_n % tile.walk_n, 0);
    EXPECT_EQ(tile.m() * tile.k % (4 * tile.num_threads()), 0);
    EXPECT_EQ(tile.n() * tile.k % (4 * tile.num_threads()), 0);
  }
}

TEST(MmaTileChoice, IsLargeOnceLargeTilesFillTheChip) {
  EXPECT_EQ(choose_mma_tile({4096, 4096, 1}, kNumSms), MmaLarge::kShape);
  EXPECT_EQ(choose_mma_tile({12 * 128, 11 * 128, 1}, kNumSms), MmaLarge::kShape);
  EXPECT_EQ(choose_mma_tile({12 * 128, 10 * 128, 1}, kNumSms), MmaSmall::kShape);
  EXPECT_EQ(choose_mma_tile({128, 128, kNumSms}, kNumSms), MmaLarge::kShape);
  EXPECT_EQ(choose_mma_tile({17, 4096, 1}, kNumSms), MmaSmall::kShape);
}

TEST(MmaTileChoice, IsNarrowForAFewRows) {
  for (const int m : {1, 8, 16}) {
    EXPECT_EQ(choose_mma_tile({m, 131072, 1}, kNumSms), MmaNarrow::kShape) << m;
  }
}

TEST(SimtTileChoice, IsLargeOnceLargeTilesFillTheChip) {
  EXPECT_EQ(choose_simt_tile({4096, 4096, 1}, kNumSms, true), SimtWide::kShape);
  EXPECT_EQ(choose_simt_tile({4096, 4096, 1}, kNumSms, false), SimtLarge::kShape);
  EXPECT_EQ(choose_simt_tile({2 * 128 * kNumSms, 128, 1}, kNumSms, true), SimtLarge::kShape);
  EXPECT_EQ(choose_simt_tile({1024, 1024, 1}, kNumSms, true), SimtSmall::kShape);
  EXPECT_EQ(choose_simt_tile({1024, 1024, 3}, kNumSms, true), SimtWide::kShape);
}

TEST(TileCounts, CoverRaggedProducts) {
  const TileCounts tiles = count_tiles({129, 1, 3}, 128, 64);
  EXPECT_EQ(tiles.m, 2);
  EXPECT_EQ(tiles.n, 1);
  EXPECT_EQ(tiles.total(), 6);
  EXPECT_EQ(count_tiles({0, 64, 3}, 128, 64).total(), 0);
}

TEST(TileOrder, VisitsEveryTileOnce) {
  for (const auto& [tiles_m, tiles_n, batch] :
       {std::tuple{1, 1, 1}, {7, 3, 2}, {8, 5, 1}, {9, 4, 3}, {33, 17, 2}}) {
    std::set<std::tuple<int, int, int>> seen;
    for (int block = 0; block < tiles_m * tiles_n * batch; ++block) {
      const TileIndex at = tile_at(block, tiles_m, tiles_n);
      ASSERT_TRUE(at.m >= 0 && at.m < tiles_m && at.n >= 0 && at.n < tiles_n);
      ASSERT_TRUE(at.batch >= 0 && at.batch < batch);
      seen.emplace(at.m, at.n, at.batch);
    }
    EXPECT_EQ(seen.size(), static_cast<size_t>(tiles_m * tiles_n * batch)) << tiles_m;
  }
}

// 64 blocks in flight over 32 x 32 tiles touch 8 strips of a and 8 of b, not 2 and 32.
TEST(TileOrder, KeepsTheBlocksInFlightInASquarePatch) {
  std::set<int> rows, cols;
  for (int block = 256; block < 320; ++block) {
    const TileIndex at = tile_at(block, 32, 32);
    rows.insert(at.m);
    cols.insert(at.n);
  }
  EXPECT_EQ(rows.size(), 8u);
  EXPECT_EQ(cols.size(), 8u);
}

GemmArgs product(void* data, int64_t m, int64_t n, int64_t k) {
  return {.a = TensorView::contiguous(data, DType::bf16, {m, k}),
          .b = TensorView::contiguous(data, DType::bf16, {n, k}),
          .out = TensorView::contiguous(data, DType::bf16, {m, n})};
}

TEST(PortableGemm, TakesAlignedRowsInItsAlignedRow) {
  alignas(16) char data[64];
  EXPECT_TRUE(accepts_aligned(product(data, 5, 7, 64)));
  EXPECT_FALSE(accepts_aligned(product(data, 5, 7, 65)));
  EXPECT_FALSE(accepts_aligned(product(data + 2, 5, 7, 64)));
  GemmArgs gaps = product(data, 5, 7, 65);
  gaps.a.strides[0] = gaps.b.values.strides[0] = 72;
  EXPECT_TRUE(accepts_aligned(gaps)) << "k may end within 16 bytes";
  EXPECT_TRUE(accepts_any(product(data + 2, 5, 7, 65)));
}

TEST(PortableGemm, AsksNothingOfAStrideThatIsNeverWalked) {
  alignas(16) char data[64];
  GemmArgs one = product(data, 1, 7, 64);
  one.a.strides[0] = 3;
  EXPECT_TRUE(accepts_aligned(one));
}

TEST(PortableGemm, RefusesSizesBeyondItsIndices) {
  alignas(16) char data[64];
  EXPECT_FALSE(accepts_any(product(data, 4, 4, int64_t{1} << 31)));
  EXPECT_FALSE(accepts_any(product(data, int64_t{1} << 31, 4, 64)));
  EXPECT_FALSE(accepts_any(product(data, int64_t{1} << 30, int64_t{1} << 20, 64)));
}

TEST(PortableGemm, PassesFloatsThroughTf32OnlyWhereAllowed) {
  alignas(16) char data[64];
  GemmArgs args = product(data, 4, 4, 64);
  args.a.dtype = args.b.values.dtype = args.out.dtype = DType::f32;
  EXPECT_FALSE(accepts_tf32(args));
  args.allow_tf32 = true;
  EXPECT_TRUE(accepts_tf32(args));
}

}  // namespace
}  // namespace tessera::kernels
