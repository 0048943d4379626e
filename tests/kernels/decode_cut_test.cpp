// How decode's portable kernel cuts rows and keys: nothing is missed, nothing is met twice.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <vector>

#include "kernels/attention/decode/portable/cut.h"

namespace tessera::kernels::decode_portable {
namespace {

TEST(DecodeRowCut, GivesEveryRowToOneTile) {
  for (const int q_len : {1, 2, 3, 5, 16}) {
    for (const int group : {1, 3, 4, 7, 8, 12, 32}) {
      for (const int rows_per_tile : {4, 8}) {
        for (const bool is_by_query : {false, true}) {
          const DecodeRowCut cut{q_len, group, rows_per_tile, is_by_query};
          std::vector<int> num_tiles(static_cast<size_t>(q_len * group));
          for (int i = 0; i < cut.num_tiles(); ++i) {
            const DecodeRowCut::Tile tile = cut.tile(i);
            ASSERT_GE(tile.count, 1);
            ASSERT_LE(tile.count, rows_per_tile);
            ASSERT_LE(tile.first + tile.count, q_len * group);
            if (is_by_query) {
              ASSERT_EQ(tile.first / group, (tile.first + tile.count - 1) / group);
            }
            for (int r = 0; r < tile.count; ++r) ++num_tiles[static_cast<size_t>(tile.first + r)];
          }
          for (const int count : num_tiles) ASSERT_EQ(count, 1);
          ASSERT_GE(cut.most_pieces(), 1);
          ASSERT_LE(cut.most_pieces(), kDecodeMostPieces);
        }
      }
    }
  }
}

TEST(DecodeKeyCut, CoversTheKeysWithPiecesThatAreWholeTurnsOfTheWarps) {
  constexpr int kTurn = kDecodeWarps * kDecodeStepKeys;
  for (const int most : {1, 2, 5, 16, 32}) {
    for (const int begin : {0, 1, 31, 32, 700, 5000}) {
      for (const int extent : {1, 31, 32, 33, 255, 256, 257, 8192, 8193, 100000, 1 << 20}) {
        const int end = begin + extent;
        const DecodeKeyCut cut = cut_keys(begin, end, most);
        ASSERT_EQ(cut.begin % kDecodeStepKeys, 0);
        ASSERT_LE(cut.begin, begin);
        ASSERT_GT(cut.begin + kDecodeStepKeys, begin);
        ASSERT_EQ(cut.end, end);
        ASSERT_EQ(cut.piece_keys % kTurn, 0);
        ASSERT_LE(cut.num_pieces, most);
        ASSERT_LT(cut.begin + (cut.num_pieces - 1) * cut.piece_keys, end);
        ASSERT_GE(cut.begin + cut.num_pieces * cut.piece_keys, end);
        ASSERT_LE(cut.num_pieces, bound_pieces(end, most));
      }
    }
  }
}

TEST(DecodeKeyCut, HasNoPieceWithoutKeysAndOneBlockAllTheSame) {
  EXPECT_EQ(cut_keys(0, 0, 32).num_pieces, 0);
  EXPECT_EQ(cut_keys(5, 3, 32).num_pieces, 0);
  EXPECT_EQ(bound_pieces(0, 32), 1);
  EXPECT_EQ(bound_pieces(256, 32), 1);
  EXPECT_EQ(bound_pieces(257, 32), 2);
  EXPECT_EQ(bound_pieces(1 << 30, 32), 32);
}

// What a row of 8 lanes sums up needs a lane for each row at least.
TEST(DecodeLanes, HoldAllElementsOfAHead) {
  for (int d = 1; d <= kDecodeMostDim; ++d) {
    ASSERT_GE(8 * decode_lanes(d), d);
    ASSERT_GE(decode_lanes(d), 8);
    ASSERT_LE(decode_lanes(d), 32);
  }
}

}  // namespace
}  // namespace tessera::kernels::decode_portable
