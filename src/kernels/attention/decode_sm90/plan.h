// How many blocks share the keys of a sequence and head. Pure, on the host: lengths are read on the
// device, and no result depends on it.
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "kernels/attention/decode_sm90/leaves.h"

namespace tessera::kernels {

struct DecodeShape {
  int64_t num_units;  // sequences, heads of keys, groups of rows
  int64_t longest;    // of the sequences, in keys
  int num_sms;
  int bits;           // of an element of the cache
  int log2_warps;     // of a block, but for small ones
  int log2_waiting;   // leaves of a warp, at most, whose states wait at little cost
  bool is_narrow;     // at most four queries a unit: two leaves of a warp cost little more than one
  bool has_clusters;  // whether small blocks, and kernels that fold over a cluster, were compiled
};

enum class DecodeMerge : uint8_t {
  parts,       // blocks that leave partial results in memory, or one alone
  pair,        // clusters of two blocks
  few_units,   // clusters of eight small blocks, of 4 warps
  small,       // small blocks, as in `parts`
  small_alone  // the same, one on an SM
};

struct DecodePlan {
  DecodeMerge merge;
  int log2_parts;

  bool operator==(const DecodePlan&) const = default;
};

inline constexpr int kMostLog2Parts = 4;
inline constexpr int kFewUnitsLog2Parts = 3;
inline constexpr int kLog2SmallWarps = 2;

constexpr int log2_floor(int64_t x) {
  return static_cast<int>(std::bit_width(static_cast<uint64_t>(std::max<int64_t>(x, 1)))) - 1;
}

// What sequences are cut into however many there are. The figures behind these numbers are in
// docs/results/h200/decode_tried.txt.
constexpr int least_log2_parts(const DecodeShape& shape, int64_t num_steps, int log2_leaves) {
  const int to_fit = log2_leaves - shape.log2_warps - shape.log2_waiting;
  if (shape.bits < 16) return num_steps < 128 ? 0 : to_fit;
  // Wave after wave of blocks is faster in pairs.
  const bool has_waves = num_steps >= 128 && shape.num_units >= int64_t{3} * shape.num_sms;
  return std::max(to_fit, has_waves ? 1 : 0);
}

constexpr DecodePlan plan_decode(const DecodeShape& shape) {
  const int64_t num_steps = (std::max<int64_t>(shape.longest, 1) + kStepKeys - 1) / kStepKeys;
  const bool is_16_bit = shape.bits == 16;
  const int log2 = log2_leaves(static_cast<int>(num_steps), shape.bits);
  // Few heads of short sequences: the fold through a cluster is 0.7 us faster than through memory.
  if (shape.has_clusters && shape.num_units <= (is_16_bit ? 8 : 16) && num_steps <= 256) {
    return {DecodeMerge::few_units, kFewUnitsLog2Parts};
  }
  const int64_t num_waves = is_16_bit ? 1 : 2;
  if ((is_16_bit || shape.is_narrow) && shape.has_clusters && num_steps < 64 &&
      shape.num_units > num_waves * shape.num_sms) {
    return {DecodeMerge::small, 0};
  }
  // A block for every SM, with some steps for every warp.
  const int to_fill = log2_floor(shape.num_sms / std::max<int64_t>(shape.num_units, 1));
  const int filling = std::min(to_fill, std::max(log2_floor(num_steps / 32), 1));
  if (is_16_bit && shape.has_clusters && log2 - filling - kLog2SmallWarps <= shape.log2_waiting) {
    // Long sequences stream faster with less on its way, as long as most SMs have a block.
    const int64_t num_blocks = shape.num_units << filling;
    const int64_t least_steps = shape.num_units <= shape.num_sms && filling == 0 ? 128 : 512;
    if (num_steps >> filling >= least_steps && 4 * num_blocks >= int64_t{3} * shape.num_sms) {
      return {num_blocks > shape.num_sms ? DecodeMerge::small_alone : DecodeMerge::small, filling};
    }
  }
  const int log2_parts = std::min({std::max(filling, least_log2_parts(shape, num_steps, log2)),
                                   log2 - shape.log2_warps, kMostLog2Parts});
  if (log2_parts == 1 && shape.has_clusters) return {DecodeMerge::pair, 1};
  return {DecodeMerge::parts, log2_parts};
}

// What is asked of L2 while the kernel before still runs.
struct DecodeEarly {
  int num_blocks = 0;  // the first ones, which have a place by then
  int num_steps = 0;   // of every warp

  bool operator==(const DecodeEarly&) const = default;
};

// 128 KB an SM, of calls that read much. `step_bytes`: a step of all warps of a block.
constexpr DecodeEarly plan_early(int64_t bytes, int64_t num_blocks, int64_t step_bytes, int num_sms,
                                 int blocks_on_sm) {
  constexpr int64_t kLeastBytes = 32 << 20, kBytesOnSm = 128 << 10;
  if (bytes < kLeastBytes) return {};
  const int64_t at_once = std::min<int64_t>((num_blocks + num_sms - 1) / num_sms, blocks_on_sm);
  return {num_sms * blocks_on_sm,
          static_cast<int>(std::max<int64_t>(kBytesOnSm / (step_bytes * at_once), 1))};
}

}  // namespace tessera::kernels
