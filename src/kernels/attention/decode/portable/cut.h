// How the portable decode kernel divides a call: rows into tiles, the keys of a tile into pieces.
// Both depend on the call's shape and the sequence alone, never on the batch.
// SPDX-License-Identifier: MIT
#pragma once

namespace tessera::kernels::decode_portable {

inline constexpr int kDecodeWarps = 4;
inline constexpr int kDecodeThreads = 32 * kDecodeWarps;
inline constexpr int kDecodeStepKeys = 32;     // keys that a warp processes at once
inline constexpr int kDecodeLeastPiece = 256;  // keys
inline constexpr int kDecodeMostPieces = 32;   // one per lane of the warp that merges them
inline constexpr int kDecodeMostDim = 256;

// The rows of a sequence and KV head: row r is query r / group of head r % group of the group.
struct DecodeRowCut {
  int q_len;
  int group;          // query heads that share a KV head
  int rows_per_tile;  // at most
  bool is_by_query;   // tiles hold rows of one query only, because each query has its own key list

  struct Tile {
    int first;
    int count;
  };
  constexpr int unit_rows() const { return is_by_query ? group : q_len * group; }
  constexpr int unit_tiles() const { return (unit_rows() + rows_per_tile - 1) / rows_per_tile; }
  constexpr int num_tiles() const { return unit_tiles() * (is_by_query ? q_len : 1); }
  constexpr Tile tile(int idx) const {
    const int within = idx % unit_tiles() * rows_per_tile;
    const int left = unit_rows() - within;
    return {idx / unit_tiles() * unit_rows() + within, left < rows_per_tile ? left : rows_per_tile};
  }
  // Tiles of rows already spread the work over blocks, and each piece costs scratch memory.
  constexpr int most_pieces() const {
    const int pieces = kDecodeMostPieces / num_tiles();
    return pieces > 1 ? pieces : 1;
  }
};

// Keys [begin, end) of a tile in pieces: piece i is the piece_keys keys from begin + i * piece_keys
// on. Pieces begin at a step, so that a key is processed by the same warp, with the same other
// keys, however many keys follow.
struct DecodeKeyCut {
  int begin;
  int end;
  int piece_keys;
  int num_pieces;  // 0: no keys
};

constexpr DecodeKeyCut cut_keys(int begin, int end, int most_pieces) {
  if (end <= begin) return {0, 0, kDecodeLeastPiece, 0};
  begin = begin / kDecodeStepKeys * kDecodeStepKeys;
  int piece = kDecodeLeastPiece;
  while ((end - begin - 1) / piece >= most_pieces) piece *= 2;
  return {begin, end, piece, (end - begin - 1) / piece + 1};
}

// The most pieces that any cut of up to `num_keys` keys has, and at least 1: one block of a tile
// runs even without keys.
constexpr int bound_pieces(int num_keys, int most_pieces) {
  const int pieces = (num_keys + kDecodeLeastPiece - 1) / kDecodeLeastPiece;
  return pieces < 1 ? 1 : pieces < most_pieces ? pieces : most_pieces;
}

// Lanes that share a key, with 8 elements each; a power of two.
constexpr int decode_lanes(int head_dim) { return head_dim > 128 ? 32 : head_dim > 64 ? 16 : 8; }

}  // namespace tessera::kernels::decode_portable
