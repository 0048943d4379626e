// The fragment maps as functions: every element of a tile is held by exactly one register.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "tile/fragment.cuh"
#include "tile/pipeline.cuh"

namespace tessera::tile {
namespace {

using Places = std::set<std::pair<int, int>>;

void expect_covers(const Places& places, int num_rows, int num_cols) {
  ASSERT_EQ(places.size(), static_cast<size_t>(num_rows * num_cols));
  EXPECT_EQ(*places.begin(), std::make_pair(0, 0));
  EXPECT_EQ(*places.rbegin(), std::make_pair(num_rows - 1, num_cols - 1));
  for (const auto& [row, col] : places) {
    EXPECT_TRUE(row >= 0 && row < num_rows && col >= 0 && col < num_cols) << row << ", " << col;
  }
}

TEST(FragmentTest, MmaAccumulatorsCoverTheTileOnce) {
  Places places;
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const TileCoord at = mma_accumulator_coord(lane, i);
      EXPECT_TRUE(places.emplace(at.row, at.col).second);
    }
  }
  expect_covers(places, 16, 8);
}

TEST(FragmentTest, WgmmaAccumulatorsCoverTheTileOnce) {
  for (const int n : {8, 24, 104, 256}) {
    Places places;
    for (int thread = 0; thread < 128; ++thread) {
      for (int i = 0; i < n / 2; ++i) {
        const TileCoord at = wgmma_accumulator_coord(thread, i);
        EXPECT_TRUE(places.emplace(at.row, at.col).second);
      }
    }
    expect_covers(places, 64, n);
  }
}

TEST(FragmentTest, OperandsCoverTheirTilesOnce) {
  for (const int element_bytes : {1, 2, 4}) {
    Places a_places;
    Places b_places;
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < 4 / element_bytes; ++i) {
        for (int reg = 0; reg < 4; ++reg) {
          const TileCoord at = a_fragment_coord(element_bytes, lane, reg, i);
          EXPECT_TRUE(a_places.emplace(at.row, at.col).second);
        }
        for (int reg = 0; reg < 2; ++reg) {
          const TileCoord at = b_fragment_coord(element_bytes, lane, reg, i);
          EXPECT_TRUE(b_places.emplace(at.row, at.col).second);
        }
      }
    }
    expect_covers(a_places, 16, 32 / element_bytes);
    expect_covers(b_places, 8, 32 / element_bytes);
  }
}

// What accumulator_to_a relies on: register r, element i of the A fragment of step s is accumulator
// 8 s + 2 r + i.
TEST(FragmentTest, AccumulatorsAreLaidOutAsTheNext16BitOperand) {
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 64; ++i) {
      const TileCoord held = wgmma_accumulator_coord(lane, i);
      const TileCoord wanted = a_fragment_coord(2, lane, i % 8 / 2, i % 2);
      EXPECT_EQ(held.row, wanted.row);
      EXPECT_EQ(held.col, 16 * (i / 8) + wanted.col);
    }
  }
}

TEST(FragmentTest, LanesNameEachRowOfAMatrixLoadOnce) {
  Places a_rows;
  Places b_rows;
  Places two_b_rows;
  for (int lane = 0; lane < 32; ++lane) {
    const MatrixRow a = matrix_row_16x32(lane);
    const MatrixRow b = matrix_row_8x32(lane);
    const MatrixRow two_b = matrix_row_two_8x32(lane);
    EXPECT_TRUE(a_rows.emplace(a.row, a.byte / 16).second);
    EXPECT_EQ(b_rows.emplace(b.row, b.byte / 16).second, lane < 16);
    EXPECT_TRUE(two_b_rows.emplace(two_b.row, two_b.byte / 16).second);
  }
  expect_covers(a_rows, 16, 2);
  expect_covers(b_rows, 8, 2);
  expect_covers(two_b_rows, 16, 2);
}

TEST(PipelineStateTest, ThePhaseFlipsOnceARound) {
  PipelineState<3> state;
  for (int i = 0; i < 20; ++i, state.advance()) {
    EXPECT_EQ(state.index, i % 3);
    EXPECT_EQ(state.phase, static_cast<uint32_t>(i / 3 % 2));
  }
}

}  // namespace
}  // namespace tessera::tile
