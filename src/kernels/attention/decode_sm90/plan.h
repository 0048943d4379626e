// How many blocks share the keys of a sequence and head. Pure, on the host: lengths are read on the
// device, and no result depends on it.
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "kernels/attention/decode_sm90/cost.h"
#include "kernels/attention/decode_sm90/leaves.h"

namespace tessera::kernels {

struct DecodeShape {
  int64_t num_units;  // sequences, heads of keys, groups of up to 8 queries
  int64_t longest;    // of the sequences, in keys
  int num_queries;    // that share a head's keys
  int row_bytes;      // of a key, or a value
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
  int num_queries = 8;  // of a block, at most: 8 or 16

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

constexpr int64_t steps_of_longest(const DecodeShape& shape) {
  return (std::max<int64_t>(shape.longest, 1) + kStepKeys - 1) / kStepKeys;
}

// Rules of thumb, which are within a few per cent of the best plan where sequences and heads are a
// power of two.
constexpr DecodePlan plan_by_rules(const DecodeShape& shape) {
  const int64_t num_steps = steps_of_longest(shape);
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
                                   std::max(log2 - shape.log2_warps, 0), kMostLog2Parts});
  if (log2_parts == 1 && shape.has_clusters) return {DecodeMerge::pair, 1};
  return {DecodeMerge::parts, log2_parts};
}

// What the kernels of caches of 16 bits cost, fitted to calls of an H200: blocks of 8 queries, then
// of 16.
constexpr DecodeKernelCost cost_of(DecodeMerge merge, int num_queries) {
  const bool is_wide = num_queries > 8;
  switch (merge) {
    case DecodeMerge::parts:
      if (is_wide) {
        return {3, 1, kFirstWave, kLaterWave, 1.27f, 4.18f, .954f, 2.33f, .352f, .306f};
      }
      return {3, 1, kFirstWave, kLaterWave, 1.79f, 1.81f, 1.04f, .755f, .961f, .099f};
    case DecodeMerge::pair:
      if (is_wide) return {3, 1, kFirstWave, kLaterWave, .346f, 3.08f, .991f, 1.95f, 1.78f, .053f};
      return {3, 1, kFirstWave, kLaterWave, 1.05f, 3.89f, .107f, .006f, .724f, .026f};
    case DecodeMerge::few_units:
      if (is_wide) {
        return {2, 2, kFirstWaveLean, kLaterWaveLean, 3.88f, .362f, .56f, 4.58f, 1.03f, 0};
      }
      return {2, 2, kFirstWaveLean, kLaterWaveLean, 1.56f, 3.57f, .146f, 6.23f, .267f, .019f};
    case DecodeMerge::small:
      if (is_wide) {
        return {2, 2, kFirstWaveLean, kLaterWaveLean, 3.91f, 2.22f, .041f, 1.66f, 1.34f, .048f};
      }
      return {2, 2, kFirstWaveLean, kLaterWaveLean, 2.8f, .926f, .503f, .979f, 1.53f, 0};
    case DecodeMerge::small_alone: break;
  }
  return {2, 1, kFirstWaveAlone, kLaterWaveLean, 1.46f, 3.49f, 0, 0, 1.49f, .076f};
}

constexpr float cost_of(const DecodeShape& shape, const DecodePlan& plan) {
  const int64_t num_groups = (shape.num_queries + 7) / 8;
  const int64_t num_wide = (shape.num_queries + plan.num_queries - 1) / plan.num_queries;
  return decode_cost(cost_of(plan.merge, plan.num_queries),
                     {.num_units = shape.num_units / num_groups * num_wide,
                      .num_steps = steps_of_longest(shape),
                      .unit_bytes = 2 * shape.longest * shape.row_bytes,
                      .num_sms = shape.num_sms},
                     plan.log2_parts);
}

// The cheapest plan by the model.
constexpr DecodePlan plan_by_cost(const DecodeShape& shape) {
  const int log2 = log2_leaves(static_cast<int>(steps_of_longest(shape)), shape.bits);
  DecodePlan best{DecodeMerge::parts, 0};
  float best_us = cost_of(shape, best);
  const auto consider = [&](const DecodePlan& plan) {
    const float us = cost_of(shape, plan);
    if (us >= best_us) return;
    best = plan;
    best_us = us;
  };
  for (const int num_queries : {8, 16}) {
    if (num_queries > 8 && shape.num_queries <= 8) break;
    consider({DecodeMerge::pair, 1, num_queries});
    // More clusters of eight do not fit side by side.
    if (shape.num_units < 16) consider({DecodeMerge::few_units, kFewUnitsLog2Parts, num_queries});
    for (int log2_parts = 0; log2_parts <= kMostLog2Parts; ++log2_parts) {
      if (log2_parts == 0 || log2_parts + shape.log2_warps <= log2) {
        consider({DecodeMerge::parts, log2_parts, num_queries});
      }
      if (log2_parts > 0 && log2_parts + kLog2SmallWarps > log2) break;
      // States that wait in memory cost more than the model knows.
      if (log2 - log2_parts - kLog2SmallWarps > shape.log2_waiting) continue;
      consider({DecodeMerge::small, log2_parts, num_queries});
      if (num_queries == 8) consider({DecodeMerge::small_alone, log2_parts});
    }
  }
  return best;
}

// The rules' plan, unless the model has one that is clearly better.
constexpr DecodePlan plan_decode(const DecodeShape& shape) {
  const DecodePlan plan = plan_by_rules(shape);
  if (shape.bits != 16 || !shape.has_clusters) return plan;
  constexpr float kClearly = 1.05f;
  const DecodePlan best = plan_by_cost(shape);
  const bool is_worse = cost_of(shape, plan) > kClearly * cost_of(shape, best);
  return is_worse || shape.num_queries > 8 ? best : plan;
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
