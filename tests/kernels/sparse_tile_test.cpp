// The shapes of the kernel for 2:4 sparse weights, and which serves what.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include "kernels/gemm/sparse/tile.h"

namespace tessera::kernels {
namespace {

constexpr int kSms = 132;
constexpr int64_t kSharedBytes = 227 * 1024;
constexpr int64_t kLeastBytes = 99 * 1024;  // of a block, among GPUs from sm_80 up

constexpr SparseTile kTiles[] = {SparseLarge::kShape, SparseSmall::kShape, SparseWide::kShape,
                                 SparseMiddle::kShape, SparseNarrow::kShape};

TEST(SparseTiles, AreWholeForTheirWarps) {
  for (const SparseTile& tile : kTiles) {
    EXPECT_EQ(tile.n % (32 * tile.warps_n), 0) << tile.n << "x" << tile.m;
    EXPECT_EQ(tile.m % (8 * tile.warps_m), 0) << tile.n << "x" << tile.m;
    EXPECT_GE(tile.num_stages, 3) << tile.n << "x" << tile.m;
    EXPECT_LE(tile.shared_bytes(), kSharedBytes) << tile.n << "x" << tile.m;
    EXPECT_EQ(tile.stage_bytes() % 128, 0) << tile.n << "x" << tile.m;
    EXPECT_LE(tile.m * (tile.n + 8) * 2, tile.shared_bytes()) << tile.n << "x" << tile.m;
  }
}

TEST(SparseTiles, CoverTheLayersOfLlamaInFewWaves) {
  const auto chosen = [](int64_t m, int64_t n, int64_t k) {
    return choose_sparse_tile(m, n, k, kSms, kSharedBytes);
  };
  EXPECT_EQ(chosen(16, 28672, 4096), SparseWide::kShape);
  EXPECT_EQ(chosen(16, 4096, 14336), SparseNarrow::kShape);
  EXPECT_EQ(chosen(256, 4096, 14336), SparseSmall::kShape);
  EXPECT_EQ(chosen(4096, 28672, 4096), SparseLarge::kShape);
  EXPECT_EQ(chosen(4096, 4096, 14336), SparseLarge::kShape);
}

// The test shapes of bench/problems/sparse.cpp that are there for it.
TEST(SparseTiles, AreAllMetByTheTestsOfTheRow) {
  const auto chosen = [](int64_t m, int64_t n, int64_t k) {
    return choose_sparse_tile(m, n, k, kSms, kSharedBytes);
  };
  EXPECT_EQ(chosen(1, 512, 1024), SparseNarrow::kShape);
  EXPECT_EQ(chosen(9, 16001, 96), SparseMiddle::kShape);
  EXPECT_EQ(chosen(9, 28004, 64), SparseWide::kShape);
  EXPECT_EQ(chosen(300, 1000, 288), SparseSmall::kShape);
  EXPECT_EQ(chosen(1000, 8408, 96), SparseLarge::kShape);
}

TEST(SparseTiles, FitTheSmallestDevice) {
  for (const int64_t m : {1, 16, 300, 4096}) {
    EXPECT_LE(choose_sparse_tile(m, 4096, 4096, 68, kLeastBytes).shared_bytes(), kLeastBytes);
  }
}

}  // namespace
}  // namespace tessera::kernels
