// The shapes that the Hopper prefill kernel is compiled for, and the order in which its tiles are
// processed. Plain arithmetic, tested on the CPU.
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace tessera::kernels::prefill_sm90 {

// A block processes kRows queries of one head against blocks of kKeys keys. One warpgroup holds 64
// rows of scores and of results in registers.
// kSumsInFloat: the tensor cores sum the products of one block of keys only, and blocks are added
// by ordinary instructions, because FP8 accumulation keeps fewer digits than a float. kIsPadded:
// heads may have fewer elements than the tile. TMA fills the rest with zeros and does not store it,
// as the tensor maps have the heads' own sizes.
template <int kKeyDim_, int kValueDim_, int kWarpgroups_, int kKeys_, int kQueryBuffers_,
          int kStages_, bool kSumsInFloat_ = false, bool kIsPadded_ = false>
struct PrefillTile {
  static constexpr int kKeyDim = kKeyDim_;
  static constexpr int kValueDim = kValueDim_;
  static constexpr int kWarpgroups = kWarpgroups_;
  static constexpr int kRows = 64 * kWarpgroups_;
  static constexpr int kKeys = kKeys_;
  static constexpr int kQueryBuffers = kQueryBuffers_;
  static constexpr int kStages = kStages_;  // of k, and of v
  static constexpr bool kSumsInFloat = kSumsInFloat_;
  static constexpr bool kIsPadded = kIsPadded_;
  // A warpgroup overlaps the exponentials of one block with its own products of the block before.
  // That needs the weights of two blocks in registers; three or four warpgroups use the registers
  // for longer blocks or more rows instead, and overlap with each other's products.
  static constexpr bool kOverlaps = kWarpgroups == 2;
  // A warpgroup skips blocks that only other warpgroups of the tile see: tiles of many rows have
  // such blocks at the edge of a mask.
  static constexpr bool kSkipsBlocks = kWarpgroups > 2;
  static constexpr int kThreads = 128 * (kWarpgroups + 1);
  // A block starts with an equal share of registers per thread; consumers get what the producers
  // give up (setmaxnreg).
  static constexpr int kStartRegisters = 65536 / kThreads / 8 * 8;
  static constexpr int kProducerRegisters = kWarpgroups == 2 ? 40 : 32;
  static constexpr int kConsumerRegisters =
      (kStartRegisters * (kWarpgroups + 1) - kProducerRegisters) / kWarpgroups / 8 * 8;
  static_assert(kKeys % 16 == 0 && kKeys <= 256 && kValueDim % 32 == 0);
};

// The part of a tile that depends on the head dimensions. docs/kernels/attention.md lists what was
// tried.
struct PrefillShape {
  int warpgroups;
  int keys;
  int query_buffers;
  int stages;
};

// General instances (softcap, ALiBi, dropout) and sums in float need extra registers. Where
// exponentials take longer than products, with small or 8-bit heads, more warpgroups keep the
// exponential unit busy.
constexpr PrefillShape choose_prefill_shape(int key_dim, int value_dim, int bits, bool is_general,
                                            bool sums_in_float) {
  const bool is_large = key_dim > 128;
  if (is_general) return {2, is_large && bits == 16 ? 48 : 64, is_large ? 1 : 2, 2};
  if (sums_in_float) return {2, key_dim == 64 ? 128 : 96, 2, 3};
  if (key_dim == 256) return {2, bits == 8 ? 96 : 64, 1, 2};
  if (is_large) return {2, value_dim > 128 ? 96 : 128, 1, 2};
  if (key_dim <= 64 && bits == 16) return {4, 64, 2, 6};
  if (key_dim <= 64) return {3, 128, 2, 3};
  if (bits == 8) return {3, 96, 2, 3};
  if (key_dim == 96) return {3, 80, 2, 3};
  return {2, 128, 2, 2};
}

// What an instance is compiled for.
enum class PrefillKind : uint8_t {
  plain,
  general,        // softcap, ALiBi or dropout
  padded,         // heads of at most the tile's elements
  sums_in_float,  // e4m3
};

template <int kKeyDim, int kValueDim, int kBits, PrefillKind kKind>
struct ChoosePrefillTile {
  static constexpr bool kSumsInFloat = kKind == PrefillKind::sums_in_float;
  static constexpr PrefillShape kShape =
      choose_prefill_shape(kKeyDim, kValueDim, kBits, kKind == PrefillKind::general, kSumsInFloat);
  using type = PrefillTile<kKeyDim, kValueDim, kShape.warpgroups, kShape.keys, kShape.query_buffers,
                           kShape.stages, kSumsInFloat, kKind == PrefillKind::padded>;
};

struct PrefillOrder {
  int num_heads;     // of all sequences
  int m_tiles;       // of each head
  int num_blocks;    // that share the tiles
  bool is_causal;    // tile m has m + 1 steps; otherwise all have the same number
  int64_t kv_bytes;  // keys and values of one head, divided by the heads that share them

  bool operator==(const PrefillOrder&) const = default;
};

// How evenly the blocks are loaded if rounds alternate in direction (tile_of_round): mean load
// divided by the largest.
inline double evenness(const PrefillOrder& order, int group) {
  std::vector<int> load(static_cast<size_t>(order.num_blocks));
  int64_t total = 0;
  int index = 0;
  for (int first = 0; first < order.num_heads; first += group) {
    const int heads = std::min(group, order.num_heads - first);
    for (int m = order.m_tiles - 1; m >= 0; --m) {
      const int steps = (order.is_causal ? m + 1 : order.m_tiles) + 1;  // one for the start
      for (int head = 0; head < heads; ++head, ++index) {
        const int block = index % order.num_blocks;
        const bool is_back = index / order.num_blocks % 2 == 1;
        load[static_cast<size_t>(is_back ? order.num_blocks - 1 - block : block)] += steps;
        total += steps;
      }
    }
  }
  const int most = *std::max_element(load.begin(), load.end());
  return static_cast<double>(total) / order.num_blocks / most;
}

inline constexpr int64_t kGroupBytes = int64_t{16} << 20;  // of keys and values: a third of L2

// Heads of a group, whose tiles are processed together. Without a causal mask one head after the
// other. With one, groups that fit in L2, unless they make the blocks' loads uneven.
inline int choose_group(const PrefillOrder& order) {
  if (!order.is_causal) return 1;
  const int64_t fitting = kGroupBytes / std::max<int64_t>(order.kv_bytes, 1);
  const int64_t num_tiles = int64_t{order.num_heads} * order.m_tiles;
  // With many blocks per head the blocks share what they read anyway.
  if (fitting >= order.num_heads || order.num_blocks >= 4 * order.num_heads) return order.num_heads;
  if (num_tiles > 1 << 14) return order.num_heads;
  int best = order.num_heads;
  double most_even = 0.96;
  const int step = std::max(1, static_cast<int>(fitting) / 32);
  for (int group = static_cast<int>(fitting); group >= 1 && group > fitting / 2; group -= step) {
    const double even = evenness(order, group);
    if (even <= most_even) continue;
    most_even = even;
    best = group;
  }
  return best;
}

}  // namespace tessera::kernels::prefill_sm90
