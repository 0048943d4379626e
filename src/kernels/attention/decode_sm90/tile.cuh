// The shapes of the Hopper decode kernel.
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <bit>

#include "kernels/attention/decode_sm90/leaves.h"
#include "tile/swizzle.cuh"

namespace tessera::kernels {

// A row of kD elements lies in shared memory in panels of at most 128 bytes, as the copy engine
// swizzles them. kQueries, 4 or a multiple of 8, are attended for at once.
template <class K_, class V_, int kD_, int kQueries, int kWarps_, bool kIsGeneral_,
          bool kIsLean_ = false>
struct DecodeTile {
  using K = K_;
  using V = V_;
  static_assert(K::kBits == V::kBits);
  static constexpr int kD = kD_;
  static constexpr int kQuads = kD / 4;
  static constexpr bool kHasOffset = V::kNumScales == 2 || V::kValueBase != 0;
  static constexpr int kTiles = (kQueries + 7) / 8;
  static constexpr int kRows = 8 * kTiles;
  // Four queries fill half of a product's columns. Lanes of the other half then take the scores of
  // half of the keys.
  static constexpr bool kIsNarrow = kQueries < 8;
  static constexpr int kBoxesOfLane = kIsNarrow ? 1 : 2;  // whose scores a lane has
  // By how many leaves steps are taken by turns: codes of a head are few bytes and lie in one
  // piece. (Where columns have scales no register is left for it.)
  static constexpr int kLog2Turns = K::kBits == 16 || K::kHasColumns ? 0 : kD <= 128 ? 3 : 2;
  static constexpr int kWarps = kWarps_;
  static constexpr int kLog2Warps = std::countr_zero(static_cast<unsigned>(kWarps));
  static constexpr int kThreads = 32 * kWarps;
  static constexpr bool kIsGeneral = kIsGeneral_;
  // Less on its way than the others have: long sequences stream faster so.
  static constexpr bool kIsLean = kIsLean_;
  static constexpr int kRowBytes = kD * K::kBits / 8;
  static constexpr int kPanelBytes = kRowBytes % 128 == 0  ? 128
                                     : kRowBytes % 64 == 0 ? 64
                                     : kRowBytes % 32 == 0 ? 32
                                                           : 16;
  static constexpr int kPanels = kRowBytes / kPanelBytes;
  static constexpr int kPanelChunks = kPanelBytes / 16;
  static constexpr int kPanelSize = kBoxKeys * kPanelBytes;
  static constexpr tile::Swizzle kSwizzle = tile::swizzle_of_span(kPanelBytes);
  static constexpr int kBoxBytes = kBoxKeys * kRowBytes;
  // Keys of a step, or its values: what one barrier waits for.
  static constexpr int kHalfBytes = 2 * kBoxBytes;
  // Keys of four bits and their values come together: half the copies to start and to wait for.
  static constexpr bool kIsJoint = K::kBits == 4;
  static constexpr int kSlotBytes = kIsJoint ? 2 * kHalfBytes : kHalfBytes;
  // Scales beside a slot, those of keys first.
  static constexpr int kKeyScaleBytes = K::kHasColumns ? kD * 4 : kStepKeys * 2 * K::kNumScales;
  static constexpr int kValueScaleBytes = kStepKeys * 2 * V::kNumScales;
  static constexpr int kScaleBytes =
      kIsJoint ? kKeyScaleBytes + kValueScaleBytes : std::max(kKeyScaleBytes, kValueScaleBytes);
  // The newest 32 keys in 16 bits, in rows that start in different banks.
  static constexpr int kTailPitch = 2 * kD + 16;
  static constexpr int kTailBytes = K::kHasColumns ? kStepKeys * kTailPitch : 0;
  // Eight warps of 16-bit keys fill an SM with what they have in flight. Codes are fewer bytes and
  // more work: sixteen, with half the registers each.
  static constexpr bool kIsDense = K::kBits < 16 && kTiles == 1 && kD <= 128 && !kIsGeneral;
  static constexpr int kWarpsOnSm = kIsDense ? 16 : kHalfBytes > 8192 ? 4 : 8;
  static constexpr int kBlocksOnSm = std::max(kWarpsOnSm / kWarps, 1);
  // States that wait for their sibling in the tree: those of the lowest level, met often, in
  // registers where there are enough, of the next ones in shared memory. Rings leave no L1 cache
  // for more, and memory is far.
  static constexpr bool kKeepsLowest = !kIsDense && kD * kTiles <= 128;
  static constexpr bool kHasWaitingRoom = !kIsGeneral && (kWarps == 8 || kIsLean) &&
                                          (kIsNarrow ? !K::kHasColumns : !kIsDense && kD <= 128);
  // The lowest level that lies in shared memory, and how many do: 16 queries have room for one.
  static constexpr int kFirstSharedLevel = kKeepsLowest || kIsNarrow ? 1 : 0;
  static constexpr int kSharedLevels = !kHasWaitingRoom ? 0 : kTiles == 1 ? 2 : 1;
  // Of a lane, references, sums and offsets with them. Of four queries half of the lanes have some.
  static constexpr int kStateQuads = kD / 16 + (kHasOffset ? 2 : 1);
  static constexpr int kWaitingBytes =
      kSharedLevels * kTiles * kStateQuads * (kIsNarrow ? 16 : 32) * 16;
  // Slots a warp has room for. Sixteen warps need fewer each, and L1 takes what they leave.
  static constexpr int kWarpBytes =
      kIsDense
          ? 9 * 1024
          : (220 * 1024 - kBlocksOnSm * kTailBytes) / std::max(kWarpsOnSm, kWarps) - kWaitingBytes;
  static constexpr int kDepth =
      kIsLean ? 16 * 1024 / kSlotBytes
              : std::clamp(kWarpBytes / (kSlotBytes + kScaleBytes + 8), 2, 16);
};

// Where bytes are what is waited for: of four bits, and of few heads of short sequences, asking
// costs more time than it saves.
template <class Tile, int kCluster>
inline constexpr bool kAsksEarly = Tile::K::kBits >= 8 && !Tile::kIsGeneral && kCluster <= 2;

}  // namespace tessera::kernels
