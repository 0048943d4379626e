// The launchers that the sm90 table of decode attention points at, and their plan: how many blocks
// share the keys of a sequence and KV head, and how their results are merged. Pure host arithmetic:
// lengths are known on the device only, and no result depends on the plan.
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/attention/decode/sm90/cut.h"
#include "tessera/core/context.h"
#include "tessera/ops/attention.h"
#include "tessera/ops/attention_append.h"

namespace tessera::kernels::decode_sm90 {

inline int64_t q_len_of(const DecodeAttentionArgs& args) {
  return args.q.rank == 4 ? args.q.size(1) : 1;
}

// Every query sees all keys of its sequence, and scores are only scaled.
inline bool is_plain(const DecodeAttentionArgs& args) {
  return q_len_of(args) == 1 && args.window == 0 && args.softcap == 0.0f &&
         args.alibi_slopes.data == nullptr && args.tree.data == nullptr;
}

// Queries of type Q with heads of kD elements; keys in kFormat, values in traits(kFormat).values.
template <class Q, KvFormat kFormat, int kD>
void launch_decode(const DecodeAttentionArgs& args, const Context& ctx);

// The same over plain pages, with the newest tokens appended on the way.
template <class Q, int kD>
void launch_append(const AppendAttentionArgs& args, const Context& ctx);

// A balanced assignment, which is not batch-invariant, over plain pages.
template <class Q, int kD>
void launch_streaming(const DecodeAttentionArgs& args, const Context& ctx);

// The cost model below ranks plans for 16-bit caches. It describes one H200 and was fitted to
// measured calls (docs/results/h200/decode_tried.txt, 39).

// TB/s that blocks reach together, linear between points and constant beyond the last. `share` is
// the number of blocks divided by the number of SMs.
struct RatePoint {
  float share;
  float rate;
};
using RateCurve = std::span<const RatePoint>;

constexpr float rate_at(RateCurve curve, float share) {
  for (size_t i = 1; i < curve.size(); ++i) {
    const RatePoint a = curve[i - 1], b = curve[i];
    if (share > b.share) continue;
    return a.rate + (b.rate - a.rate) * (share - a.share) / (b.share - a.share);
  }
  return curve.back().rate;
}

// Measured: the rate drops just above half as many blocks as SMs, less so for blocks with few bytes
// in flight. Likely cause, not proved: two SMs share a path to memory, and pairs then end late.
inline constexpr RatePoint kFirstWave[] = {
    {0, 0},        {.295f, 3.8f}, {.5f, 4.25f},  {.53f, 3.1f},  {.59f, 2.8f},
    {.636f, 3.0f}, {.682f, 3.4f}, {.758f, 3.7f}, {.848f, 4.2f}, {1, 4.5f}};
inline constexpr RatePoint kFirstWaveLean[] = {
    {0, 0},    {.182f, 1.65f}, {.364f, 2.95f}, {.485f, 3.6f}, {.59f, 3.93f}, {.758f, 4.28f},
    {1, 4.4f}, {1.05f, 3.1f},  {1.18f, 2.9f},  {1.36f, 3.6f}, {1.7f, 4.1f},  {2, 4.4f}};
inline constexpr RatePoint kFirstWaveAlone[] = {
    {0, 0},        {.182f, 1.65f}, {.364f, 2.95f}, {.485f, 3.6f}, {.545f, 3.9f}, {.59f, 3.3f},
    {.636f, 3.2f}, {.682f, 3.7f},  {.758f, 3.9f},  {.848f, 4.4f}, {1, 4.55f}};
// Blocks of later waves start one by one, which evens out the drop.
inline constexpr RatePoint kLaterWave[] = {{0, 0}, {.295f, 3.8f}, {.485f, 4.25f}, {1, 4.5f}};
inline constexpr RatePoint kLaterWaveLean[] = {{0, 0},        {.182f, 1.65f}, {.364f, 2.95f},
                                               {.485f, 3.6f}, {.59f, 3.93f},  {.758f, 4.28f},
                                               {1, 4.4f}};

// What one way to run a call costs, in microseconds.
struct DecodeKernelCost {
  int log2_warps;  // per block
  int blocks_on_sm;
  RateCurve first;  // rate of the first wave
  RateCurve later;
  float call;   // once
  float block;  // per wave
  float step;   // per step of a warp that never waits for memory
  float leaf;   // per leaf of a warp after its first
  float merge;  // once if several blocks share a sequence
  float part;   // per block that shares it
};

struct DecodeWork {
  int64_t num_units;  // sequences * KV heads * groups of queries
  int64_t num_steps;  // of the longest sequence
  int64_t unit_bytes;
  int num_sms;
};

constexpr float decode_cost(const DecodeKernelCost& kernel, const DecodeWork& work,
                            int log2_parts) {
  const int log2_tree = log2_leaves(static_cast<int>(work.num_steps), 16);
  const int log2_slots = log2_parts + kernel.log2_warps;
  const int64_t num_slots = int64_t{1} << (log2_slots < log2_tree ? log2_slots : log2_tree);
  const auto steps = static_cast<float>((work.num_steps + num_slots - 1) / num_slots);
  const auto leaves = static_cast<float>((int64_t{1} << log2_tree) / num_slots);
  const float alone = kernel.block + steps * kernel.step + (leaves - 1) * kernel.leaf;

  const int64_t num_blocks = work.num_units << log2_parts;
  const int64_t at_once = int64_t{work.num_sms} * kernel.blocks_on_sm;
  const float block_mb =
      static_cast<float>(work.unit_bytes) * 1e-6f / static_cast<float>(1 << log2_parts);
  const auto wave = [&](int64_t blocks, RateCurve curve) {
    const auto count = static_cast<float>(blocks);
    const float rate = rate_at(curve, count / static_cast<float>(work.num_sms));
    const float streaming = .5f * kernel.block + count * block_mb / rate;
    return streaming > alone ? streaming : alone;
  };
  const int64_t num_waves = num_blocks / at_once, rest = num_blocks % at_once;
  float us = kernel.call + static_cast<float>(num_waves) * wave(at_once, kernel.first);
  if (rest > 0) us += wave(rest, num_waves == 0 ? kernel.first : kernel.later);
  if (log2_parts > 0) us += kernel.merge + kernel.part * static_cast<float>(1 << log2_parts);
  return us;
}

struct DecodeShape {
  int64_t num_units;  // sequences * KV heads * groups of up to 8 queries
  int64_t longest;    // sequence, in keys
  int num_queries;    // that share a KV head
  int row_bytes;      // of a key, or a value
  int num_sms;
  int bits;           // of an element of the cache
  int log2_warps;     // per block, small blocks excepted
  int log2_waiting;   // most leaves of a warp whose states can wait outside global memory
  bool is_narrow;     // at most four queries per unit: two leaves cost a warp little more than one
  bool has_clusters;  // small blocks and kernels that fold over a cluster were compiled
};

enum class DecodeMerge : uint8_t {
  parts,       // through global memory; with one part none is needed
  pair,        // clusters of two blocks
  few_units,   // clusters of eight small blocks, of 4 warps each
  small,       // small blocks, through global memory
  small_alone  // the same, one block per SM
};

struct DecodePlan {
  DecodeMerge merge;
  int log2_parts;
  int num_queries = 8;  // most per block: 8 or 16

  bool operator==(const DecodePlan&) const = default;
};

inline constexpr int kMostLog2Parts = 4;
inline constexpr int kFewUnitsLog2Parts = 3;
inline constexpr int kLog2SmallWarps = 2;

constexpr int log2_floor(int64_t x) {
  return static_cast<int>(std::bit_width(static_cast<uint64_t>(std::max<int64_t>(x, 1)))) - 1;
}

// Parts that sequences are cut into at least, whatever the batch. The measurements behind these
// numbers are in docs/results/h200/decode_tried.txt.
constexpr int least_log2_parts(const DecodeShape& shape, int64_t num_steps, int log2_leaves) {
  const int to_fit = log2_leaves - shape.log2_warps - shape.log2_waiting;
  if (shape.bits < 16) return num_steps < 128 ? 0 : to_fit;
  // Calls of several waves are faster with pairs of blocks.
  const bool has_waves = num_steps >= 128 && shape.num_units >= int64_t{3} * shape.num_sms;
  return std::max(to_fit, has_waves ? 1 : 0);
}

constexpr int64_t steps_of_longest(const DecodeShape& shape) {
  return (std::max<int64_t>(shape.longest, 1) + kStepKeys - 1) / kStepKeys;
}

// Rules of thumb: within a few per cent of the best plan if sequences * KV heads is a power of two.
constexpr DecodePlan plan_by_rules(const DecodeShape& shape) {
  const int64_t num_steps = steps_of_longest(shape);
  const bool is_16_bit = shape.bits == 16;
  const int log2 = log2_leaves(static_cast<int>(num_steps), shape.bits);
  // Few heads of short sequences: folding through a cluster is 0.7 us faster than through memory.
  if (shape.has_clusters && shape.num_units <= (is_16_bit ? 8 : 16) && num_steps <= 256) {
    return {DecodeMerge::few_units, kFewUnitsLog2Parts};
  }
  const int64_t num_waves = is_16_bit ? 1 : 2;
  if ((is_16_bit || shape.is_narrow) && shape.has_clusters && num_steps < 64 &&
      shape.num_units > num_waves * shape.num_sms) {
    return {DecodeMerge::small, 0};
  }
  // One block per SM, with some steps for every warp.
  const int to_fill = log2_floor(shape.num_sms / std::max<int64_t>(shape.num_units, 1));
  const int filling = std::min(to_fill, std::max(log2_floor(num_steps / 32), 1));
  if (is_16_bit && shape.has_clusters && log2 - filling - kLog2SmallWarps <= shape.log2_waiting) {
    // For long sequences 64 KB in flight per SM saturates DRAM; more is slower. Lean blocks have
    // that, as long as most SMs have a block.
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

// Costs of the kernels for 16-bit caches, fitted to calls on an H200: for blocks of 16 queries,
// then of 8.
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
    // More clusters of eight are not resident at once.
    if (shape.num_units < 16) consider({DecodeMerge::few_units, kFewUnitsLog2Parts, num_queries});
    for (int log2_parts = 0; log2_parts <= kMostLog2Parts; ++log2_parts) {
      if (log2_parts == 0 || log2_parts + shape.log2_warps <= log2) {
        consider({DecodeMerge::parts, log2_parts, num_queries});
      }
      if (log2_parts > 0 && log2_parts + kLog2SmallWarps > log2) break;
      // The model does not know what states that wait in global memory cost.
      if (log2 - log2_parts - kLog2SmallWarps > shape.log2_waiting) continue;
      consider({DecodeMerge::small, log2_parts, num_queries});
      if (num_queries == 8) consider({DecodeMerge::small_alone, log2_parts});
    }
  }
  return best;
}

// The rules' plan, unless the model finds one that is clearly better.
constexpr DecodePlan plan_decode(const DecodeShape& shape) {
  const DecodePlan plan = plan_by_rules(shape);
  if (shape.bits != 16 || !shape.has_clusters) return plan;
  constexpr float kClearly = 1.05f;
  const DecodePlan best = plan_by_cost(shape);
  const bool is_worse = cost_of(shape, plan) > kClearly * cost_of(shape, best);
  return is_worse || shape.num_queries > 8 ? best : plan;
}

// What is prefetched into L2 while the previous kernel still runs.
struct DecodeEarly {
  int num_blocks = 0;  // that prefetch: the first ones, which are resident by then
  int num_steps = 0;   // per warp

  bool operator==(const DecodeEarly&) const = default;
};

// 128 KB per SM, for calls that read much. `step_bytes`: one step of all warps of a block.
constexpr DecodeEarly plan_early(int64_t bytes, int64_t num_blocks, int64_t step_bytes, int num_sms,
                                 int blocks_on_sm) {
  constexpr int64_t kLeastBytes = 32 << 20, kBytesOnSm = 128 << 10;
  if (bytes < kLeastBytes) return {};
  const int64_t at_once = std::min<int64_t>((num_blocks + num_sms - 1) / num_sms, blocks_on_sm);
  return {num_sms * blocks_on_sm,
          static_cast<int>(std::max<int64_t>(kBytesOnSm / (step_bytes * at_once), 1))};
}

}  // namespace tessera::kernels::decode_sm90
