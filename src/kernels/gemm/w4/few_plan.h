// How a product of up to 16 tokens with 4-bit weights is cut for the Hopper kernel of few tokens:
// units of rows for each block, and the layout of shared memory. Tested on the CPU.
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "kernels/gemm/w4/plan.h"

namespace tessera::kernels {

inline constexpr int kW4FewMaxTokens = 16;
inline constexpr int kW4FewMaxWarps = 14;
inline constexpr int kW4FewMaxChunks = 16;
inline constexpr int kW4UnitRows = 16;
inline constexpr int kW4UnitBytes = kW4UnitRows * kW4StageK / 2;  // of codes, for one block of k
// Shared memory up to which a warp's ring has 8 slots; a block with more tokens has 4.
inline constexpr int64_t kW4LongRings = 160 * 1024;
// With this much shared memory a block has an SM to itself. Beside a block of the next kernel,
// which loads its own weights early, products were measured to be slower: 13.2 and 10.1 us for 4096
// x 14336.
inline constexpr int kW4OneBlock = 116 * 1024;

// A warp multiplies 16 rows of the weight by kTokens rows of A. Its ring has kSlots slots of 128
// elements of k, of which kPair are multiplied at once.
template <int kTokens_, int kGroup_, int kSlots_>
struct W4FewTile {
  static constexpr int kTokens = kTokens_;
  static constexpr int kGroup = kGroup_;
  static constexpr int kSlots = kSlots_;
  static constexpr int kPair = kGroup == kW4StageK ? 2 : 1;
  static_assert(kTokens == 8 || (kTokens == 16 && kGroup != 32));
  static_assert(kSlots % kPair == 0);
};

// Shared memory: barriers, the partial sums of a cluster, A, a ring for each warp. A's rows are 16
// bytes more apart than they are long, so that ldmatrix finds eight of them in different banks.
struct W4FewLayout {
  int num_rows;     // of A
  int row_bytes;    // of the block's part of k
  int chunk_shift;  // a chunk of A has 1 << chunk_shift blocks of k
  int fold_bytes;
  int slot_bytes;
  int num_slots;
  int num_warps;

  constexpr int barrier(int chunk) const { return 8 * chunk; }
  constexpr int fold_barrier() const { return 8 * kW4FewMaxChunks; }
  constexpr int fold() const { return 256; }
  constexpr int tokens() const { return fold() + fold_bytes; }
  constexpr int token_pitch() const { return row_bytes + 16; }
  constexpr int ring_bytes() const { return num_slots * slot_bytes; }
  constexpr int ring(int warp) const {
    return (tokens() + num_rows * token_pitch() + 127) / 128 * 128 + warp * ring_bytes();
  }
  constexpr int size() const { return ring(num_warps); }
};

struct W4FewPlan {
  int tokens;  // 8 or 16
  int parts;   // of k
  int splits;  // blocks of a cluster, each with a part of k; 1: a block has all parts
  int units;   // of 16 rows, of a block
  int num_unit_blocks;
  int num_blocks;
  int num_warps;       // of a block
  bool releases_late;  // the next kernel may start once this one has multiplied, not before
  int shared_bytes;    // of a block: what the layout needs, or more
  W4FewLayout layout;
};

// The units of a block: as many as make all SMs finish soonest, and among those the most, so that A
// is read by the fewest blocks.
constexpr int choose_w4_units(const W4Problem& problem, int warps_per_unit, int splits) {
  const auto divide_up = [](int64_t value, int64_t by) { return (value + by - 1) / by; };
  int best = 1;
  int64_t best_cost = 0;
  for (int units = 1; units * warps_per_unit <= kW4FewMaxWarps; ++units) {
    const int64_t blocks = divide_up(problem.n / kW4UnitRows, units) * splits * problem.batch;
    const int64_t cost = divide_up(blocks, problem.num_sms) * units;
    if (units == 1 || cost <= best_cost) {
      best = units;
      best_cost = cost;
    }
  }
  return best;
}

// The plan in which a block has all parts of k (splits 1), or one of them; null: the tokens do not
// fit into shared memory.
constexpr std::optional<W4FewPlan> make_w4_few_plan(const W4Problem& problem, int parts,
                                                    int splits) {
  W4FewPlan plan{};
  plan.tokens = problem.m <= 8 ? 8 : 16;
  plan.parts = parts;
  plan.splits = splits;
  const int warps_per_unit = plan.parts / plan.splits;
  plan.units = choose_w4_units(problem, warps_per_unit, plan.splits);
  plan.num_warps = plan.units * warps_per_unit;
  const int64_t units = problem.n / kW4UnitRows;
  plan.num_unit_blocks = static_cast<int>((units + plan.units - 1) / plan.units);
  plan.num_blocks = static_cast<int>(plan.num_unit_blocks * plan.splits * problem.batch);

  W4FewLayout& layout = plan.layout;
  const int64_t k_blocks = problem.k / kW4StageK;
  const int64_t block_k_blocks = (k_blocks + plan.splits - 1) / plan.splits;
  if (block_k_blocks > 4096) return std::nullopt;
  layout.num_rows = static_cast<int>(problem.m);
  layout.row_bytes = static_cast<int>(block_k_blocks * kW4StageK * 2);
  layout.chunk_shift = 3;
  while (block_k_blocks > int64_t{kW4FewMaxChunks} << layout.chunk_shift) ++layout.chunk_shift;
  if (plan.splits > 1) {
    const int owned = (plan.units + plan.splits - 1) / plan.splits;
    layout.fold_bytes = owned * plan.parts * (plan.tokens / 8) * 512;
  }
  const int groups = problem.group == 0 ? 0 : kW4StageK / problem.group;
  layout.slot_bytes = kW4UnitBytes + groups * (64 + (problem.has_zero_points ? 16 : 0));
  layout.num_warps = plan.num_warps;
  // Blocks of a single wave have an SM each and release the next kernel late. Several waves of
  // blocks, and clusters, are faster if they release it early; clusters also with short rings.
  const bool is_one_wave = plan.splits == 1 && plan.num_blocks <= problem.num_sms;
  plan.releases_late = is_one_wave;
  layout.num_slots = plan.splits > 1 ? 4 : 8;
  if (layout.size() > kW4LongRings) layout.num_slots = 4;
  if (layout.size() > problem.shared_bytes) return std::nullopt;
  plan.shared_bytes = layout.size();
  if (is_one_wave) plan.shared_bytes = std::max(plan.shared_bytes, kW4OneBlock);
  return plan;
}

// For sizes of at least 1; null: the kernel of more tokens serves. The parts of k are those of
// every other product with this weight. A block that has them all needs all of A; where that does
// not fit, a cluster shares them, which is worth it up to 8 tokens.
constexpr std::optional<W4FewPlan> plan_w4_few(const W4Problem& problem) {
  // Sixteen tokens leave no registers for the scales of groups of 32.
  if (problem.m > (problem.group == 32 ? 8 : kW4FewMaxTokens)) return std::nullopt;
  const int parts = choose_w4_parts(problem.n, problem.k, problem.num_sms);
  const std::optional<W4FewPlan> plan = make_w4_few_plan(problem, parts, 1);
  // Every block reads all of A, so several waves of blocks pay only for a single token.
  if (plan && problem.m > 1 && plan->num_blocks > problem.num_sms) return std::nullopt;
  if (plan || parts == 1 || problem.m > 8) return plan;
  return make_w4_few_plan(problem, parts, parts);
}

}  // namespace tessera::kernels
