// In which order tiles are walked: plain arithmetic, tested on the CPU.
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace tessera::kernels {

struct PrefillOrder {
  int num_heads;     // of all sequences
  int m_tiles;       // of each head
  int num_blocks;    // that share the tiles
  bool is_causal;    // tile m takes m + 1 steps; else all take as many
  int64_t kv_bytes;  // keys and values of one head; those heads share, in parts

  bool operator==(const PrefillOrder&) const = default;
};

// How evenly the blocks are loaded when rounds go to and fro (work.cuh): the mean over the most.
inline double evenness(const PrefillOrder& order, int group) {
  std::vector<int> load(static_cast<size_t>(order.num_blocks));
  int64_t total = 0;
  int index = 0;
  for (int first = 0; first < order.num_heads; first += group) {
    const int heads = std::min(group, order.num_heads - first);
    for (int m = order.m_tiles - 1; m >= 0; --m) {
      const int steps = (order.is_causal ? m + 1 : order.m_tiles) + 1;  // and one to start
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

// The heads of a group. Without a causal mask the tiles of one head follow each other. With one,
// groups small enough for L2 are taken where they do not make the blocks' loads uneven.
inline int choose_group(const PrefillOrder& order) {
  if (!order.is_causal) return 1;
  const int64_t fitting = kGroupBytes / std::max<int64_t>(order.kv_bytes, 1);
  const int64_t num_tiles = int64_t{order.num_heads} * order.m_tiles;
  // Heads that many blocks walk at once share what is read anyway.
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

}  // namespace tessera::kernels
