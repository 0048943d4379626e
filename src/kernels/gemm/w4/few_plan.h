// How a product with 4-bit weights is cut for the Hopper kernel of up to 16 tokens: units of rows
// for each block, and the layout of shared memory. Tested on the CPU.
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "kernels/gemm/normed.h"
#include "kernels/gemm/w4/plan.h"

namespace tessera::kernels {

inline constexpr int kW4FewMaxTokens = 16;
inline constexpr int kW4FewMaxWarps = 16;  // of a block: they leave 128 registers for a thread
inline constexpr int kW4FewMaxChunks = 16;
// Shared memory of an SM, and what the system takes of it for each block.
inline constexpr int kW4SharedOfSm = 228 * 1024;
inline constexpr int kW4SharedPerBlock = 1024;

// A warp's ring holds 8 blocks of codes, each of 16 rows by 128 elements of k. There is always room
// for 32-bit scales and for zero points, so that offsets in the ring are constants.
inline constexpr int kW4RingBlocks = 8;
constexpr int w4_few_ring_bytes(int group) {
  const int groups = group == 0 ? 0 : kW4StageK / group;
  return kW4RingBlocks * (1024 + groups * 80);
}

// A warp multiplies a unit, kWide times 16 rows of the weight, by kTokens rows of A.
template <int kTokens_, int kGroup_, int kWide_>
struct W4FewTile {
  static constexpr int kTokens = kTokens_;
  static constexpr int kGroup = kGroup_;
  static constexpr int kWide = kWide_;
  static constexpr int kGroups = kGroup == 0 ? 0 : kW4StageK / kGroup;  // of a block of k
  // Blocks of k in a slot of the ring, which are multiplied side by side. 1 where the sums of a
  // block continue those of the block before.
  static constexpr int kPair = kGroup != kW4StageK ? 1 : (kTokens == 8 ? 4 : 2) / kWide;
  static constexpr int kSlots = kW4RingBlocks / (kPair * kWide);
  static constexpr int kCodeBytes = kPair * kWide * 1024;
  static constexpr int kScaleBytes = kPair * kWide * kGroups * 64;
  static constexpr int kSlotBytes = kCodeBytes + kScaleBytes + kScaleBytes / 4;
  static_assert((kTokens == 8 || kTokens == 16) && (kWide == 1 || kWide == 2));
  static_assert(kSlots * kSlotBytes == w4_few_ring_bytes(kGroup));
  static_assert(kSlots * kSlotBytes >= kWide * kTokens * 64, "a ring holds the sums of its warp");
};
// More tokens or rows leave no registers for the scales of small groups.
constexpr bool has_w4_few_tile(int tokens, int group, int wide) {
  if (group == 32) return tokens == 8 && wide == 1;
  return group != 64 || tokens == 8 || wide == 1;
}

// Shared memory: barriers, reductions, the partial sums of a cluster, A, a ring for each warp. A's
// rows are 16 bytes more apart than they are long, so that ldmatrix finds eight of them in
// different banks.
struct W4FewLayout {
  int num_rows;         // of A
  int row_bytes;        // of the block's share of k
  int chunk_shift;      // a chunk of A has 1 << chunk_shift blocks of k
  int reduction_bytes;  // of a norm in front of the product; 0: there is none
  int fold_bytes;
  int ring_bytes;
  int num_warps;

  constexpr int barrier(int chunk) const { return 8 * chunk; }
  constexpr int fold_barrier() const { return 8 * kW4FewMaxChunks; }
  constexpr int reductions() const { return 256; }
  constexpr int fold() const { return reductions() + reduction_bytes; }
  constexpr int token_pitch() const { return row_bytes + 16; }
  constexpr int tokens() const { return fold() + fold_bytes; }
  constexpr int tokens_end() const { return tokens() + num_rows * token_pitch(); }
  constexpr int ring(int warp) const {
    return (tokens_end() + 127) / 128 * 128 + warp * ring_bytes;
  }
  constexpr int size() const { return ring(num_warps); }
};

// How the rows and the parts of k are dealt out.
struct W4FewCut {
  int wide;    // 16 times this many rows are a unit
  int units;   // of a block; 0: as many as make all SMs finish soonest
  int splits;  // blocks of a cluster, which share the parts of k; 1: a block has all parts
  // Blocks that an SM holds; a block is given so much shared memory that there cannot be more.
  // Otherwise an SM that is free first takes several blocks of the next kernel, and another none:
  // 4096 x 14336 was measured to take 13.2 us instead of 10.1.
  int per_sm;
};

// The one place where cuts are chosen: the first rule whose limits the weight keeps. Each was
// measured with 1, 8 and 16 tokens on the layer named beside it; of cuts within 2 % it has the one
// that needs the least shared memory for a block.
// - Up to 2 tokens an SM holds several small blocks: each that ends lets in one of the next kernel.
//   The limit is not measured; by the bytes of A that all blocks read, it lies between 2 and 4.
//   For 4096 x 4096 and 28672 x 4096 the cut is the best inside a model, where the kernel in front
//   leaves some SMs earlier than others: as many blocks as fit, so that each SM gets its share.
// - Up to 16, what a block reads of A counts. So the blocks of a cluster share A, and where there
//   are enough rows a warp has 32.
// - With more, the kernel of more tokens serves: with 32 it was 1.24 times (6144 x 4096) to 1.46
//   times (28672 x 4096) as fast as the best cut.
// Units of 0 are chosen by choose_w4_units; others were measured to be faster than its choice, or
// as fast with less shared memory.
struct W4FewRule {
  int64_t most_rows;
  int64_t most_k;
  W4FewCut up_to_2, up_to_8, up_to_16;  // tokens
};
inline constexpr W4FewRule kW4FewRules[] = {
    {4096, 8192, {1, 1, 1, 2}, {1, 4, 4, 3}, {1, 6, 4, 2}},              // 4096 x 4096
    {4096, INT64_MAX, {1, 0, 2, 2}, {1, 0, 4, 1}, {1, 0, 4, 1}},         // 4096 x 14336
    {8192, INT64_MAX, {1, 0, 1, 2}, {2, 0, 4, 2}, {2, 0, 4, 1}},         // 6144 x 4096
    {16384, INT64_MAX, {1, 0, 1, 4}, {2, 0, 2, 1}, {2, 0, 2, 1}},        // 14336 x 4096
    {65536, INT64_MAX, {2, 4, 1, 2}, {2, 0, 2, 2}, {2, 0, 2, 1}},        // 28672 x 4096
    {INT64_MAX, INT64_MAX, {1, 2, 1, 5}, {2, 11, 1, 1}, {2, 11, 1, 1}},  // 128256 x 4096
};
constexpr W4FewCut choose_w4_cut(const W4Problem& problem) {
  const W4FewRule* rule = kW4FewRules;
  while (problem.n > rule->most_rows || problem.k > rule->most_k) ++rule;  // the last has no limits
  if (problem.m <= 2) return rule->up_to_2;
  return problem.m <= 8 ? rule->up_to_8 : rule->up_to_16;
}

struct W4FewPlan {
  int tokens;  // of the tile: 8 or 16
  int wide;
  int parts;  // of k
  int splits;
  int units;  // of 16 * wide rows, of a block
  int num_unit_blocks;
  int num_blocks;
  int num_warps;     // of a block: units times the parts that it has
  int shared_bytes;  // of a block: what the layout needs, or more
  W4FewLayout layout;
};

// The units of a block: as many as make all SMs finish soonest, and among those the most, so that A
// is read by the fewest blocks. A further wave of blocks costs about as much as two units: 0.8 and
// 4.4 by the times of 128256 rows with 8 and 16 tokens. Larger clusters leave SMs of a group of
// them idle: of clusters of 4, 30 run at once where an SM holds one block, 62 where it holds two.
constexpr int choose_w4_units(const W4Problem& problem, const W4FewCut& cut, int warps_per_unit) {
  const auto divide_up = [](int64_t value, int64_t by) { return (value + by - 1) / by; };
  const int num_sms = cut.splits > 2 ? problem.num_sms - problem.num_sms / 12 : problem.num_sms;
  int best = 1;
  int64_t best_cost = 0;
  for (int units = 1; units * warps_per_unit <= kW4FewMaxWarps; ++units) {
    const int64_t blocks =
        divide_up(problem.n / (16 * cut.wide), units) * cut.splits * problem.batch;
    const int64_t cost = divide_up(blocks, int64_t{num_sms} * cut.per_sm) * (units + 2);
    if (units == 1 || cost <= best_cost) {
      best = units;
      best_cost = cost;
    }
  }
  return best;
}

// For at most kW4FewMaxTokens tokens. Null: no tile is compiled for the cut, or as many blocks do
// not fit into the shared memory.
constexpr std::optional<W4FewPlan> make_w4_few_plan(const W4Problem& problem, int parts,
                                                    const W4FewCut& cut) {
  W4FewPlan plan{};
  plan.tokens = problem.m <= 8 ? 8 : 16;
  plan.wide = cut.wide;
  if (!has_w4_few_tile(plan.tokens, problem.group, plan.wide)) return std::nullopt;
  plan.parts = parts;
  plan.splits = cut.splits;
  if (parts % plan.splits != 0) return std::nullopt;
  const int warps_per_unit = parts / plan.splits, unit_rows = 16 * plan.wide;
  plan.units = cut.units;
  if (plan.units == 0) plan.units = choose_w4_units(problem, cut, warps_per_unit);
  plan.num_warps = plan.units * warps_per_unit;
  if (plan.num_warps > kW4FewMaxWarps) return std::nullopt;
  const int64_t units = problem.n / unit_rows;
  plan.num_unit_blocks = static_cast<int>((units + plan.units - 1) / plan.units);
  plan.num_blocks = static_cast<int>(plan.num_unit_blocks * plan.splits * problem.batch);

  W4FewLayout& layout = plan.layout;
  const int64_t k_blocks = problem.k / kW4StageK;
  const int64_t block_k_blocks = (k_blocks + plan.splits - 1) / plan.splits;
  if (block_k_blocks > 4096) return std::nullopt;
  layout.num_rows = static_cast<int>(problem.m);
  layout.row_bytes = static_cast<int>(block_k_blocks * kW4StageK * 2);
  // Small chunks, so that with many rows products start long before all of them are here.
  layout.chunk_shift = problem.m <= 4 ? 3 : 2;
  while (block_k_blocks > int64_t{kW4FewMaxChunks} << layout.chunk_shift) ++layout.chunk_shift;
  if (plan.splits > 1) {
    const int owned = (plan.units + plan.splits - 1) / plan.splits;
    layout.fold_bytes = owned * parts * plan.wide * plan.tokens * 64;
  }
  layout.reduction_bytes = problem.is_normed ? kReductionBytes : 0;
  layout.ring_bytes = w4_few_ring_bytes(problem.group);
  layout.num_warps = plan.num_warps;
  if (layout.size() > problem.shared_bytes) return std::nullopt;
  if (cut.per_sm * (layout.size() + kW4SharedPerBlock) > kW4SharedOfSm) return std::nullopt;
  const int least = kW4SharedOfSm / (cut.per_sm + 1) - kW4SharedPerBlock + 128;
  plan.shared_bytes = std::max(layout.size(), least);
  return plan;
}

// For sizes of at least 1; null: the kernel of more tokens serves. The parts of k are those of
// every other product with this weight.
constexpr std::optional<W4FewPlan> plan_w4_few(const W4Problem& problem) {
  if (problem.m > kW4FewMaxTokens) return std::nullopt;
  const W4FewCut cut = choose_w4_cut(problem);
  const int parts = choose_w4_parts(problem.n, problem.k);
  std::optional<W4FewPlan> plan = make_w4_few_plan(problem, parts, cut);
  if (plan) return plan;
  // Units of 16 rows for groups whose scales leave no registers for 32; smaller clusters for a k
  // that is too short for as many parts.
  W4FewCut other = cut;
  if (!has_w4_few_tile(problem.m <= 8 ? 8 : 16, problem.group, other.wide)) other.wide = 1;
  while (parts % other.splits != 0) other.splits /= 2;
  other.units = 0;
  // Where the blocks of an SM do not fit: fewer of them, or clusters, whose blocks share A. Such
  // blocks may have few rows, and each reads A, so many waves of them pay only up to two tokens.
  for (const int splits : {other.splits, parts}) {
    other.splits = splits;
    for (other.per_sm = cut.per_sm; other.per_sm > 0; --other.per_sm) {
      plan = make_w4_few_plan(problem, parts, other);
      if (!plan) continue;
      const bool has_many_waves = plan->num_blocks > 2 * other.per_sm * problem.num_sms;
      if (problem.m > 2 && has_many_waves) return std::nullopt;
      return plan;
    }
  }
  return std::nullopt;
}

}  // namespace tessera::kernels
