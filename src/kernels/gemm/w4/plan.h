// How a product with 4-bit weights is cut for the Hopper kernel: the tile, the split of k and the
// layout of shared memory. A function of the product's sizes alone, tested on the CPU.
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>

namespace tessera::kernels {

// A thread block computes a strip of 64 rows of the weight for each of its consumer warpgroups, by
// kTokens rows of A. A stage of the ring holds 128 elements of k. kGroup elements of k share a
// scale; 0: a whole row does. 128 tokens take the registers of two strips.
template <int kTokens_, int kGroup_, int kStrips_>
struct W4Tile {
  static constexpr int kTokens = kTokens_;
  static constexpr int kGroup = kGroup_;
  static constexpr int kStrips = kStrips_;
  static constexpr int kRows = 64 * kStrips;
  static constexpr int kUnits = 4 * kStrips;            // consumer warps, with 16 rows each
  static constexpr int kThreads = 128 * kStrips + 128;  // the producers' warpgroup is half idle
  // A block starts with 96 registers a thread, 128 with three strips or 168 with two; the producers
  // give some of theirs to the consumers.
  static constexpr int kProducerRegisters = kTokens == 64 && kStrips == 4 ? 32 : 40;
  static constexpr int kConsumerRegisters = kStrips == 2    ? 232
                                            : kStrips == 3  ? 152
                                            : kTokens == 64 ? 112
                                                            : 104;
  // Where blocks share the k of a large tile, the last one adds up the partial sums, through L2.
  static constexpr bool kIsLarge = kTokens > 64;
  static_assert(kTokens % 16 == 0 && kTokens <= 128 && (!kIsLarge || kStrips == 2));
};
inline constexpr int kW4LargeTokens = 128;
inline constexpr int kW4Tokens[] = {32, 64, 128};

inline constexpr int kW4StageK = 128;
inline constexpr int kW4MaxStages = 24;
inline constexpr int kW4MaxParts = 8;  // of k, and blocks of a cluster
// Stages of codes loaded before the kernel in front has finished; more was measured to be slower.
inline constexpr int kW4EarlyStages = 2;
inline constexpr int kW4StripBytes = 64 * kW4StageK / 2;
inline constexpr int kW4FoldBarrierBytes = 16;

// Offsets in shared memory: the buffer for partial sums, the ring, the barriers. A stage holds A's
// part, the codes of all strips, their scales and their zero points.
struct W4Layout {
  int fold_bytes;
  int stage_bytes;
  int num_stages;

  constexpr int stage(int index) const { return fold_bytes + index * stage_bytes; }
  constexpr int barriers() const { return stage(num_stages); }
  constexpr int fold_barrier() const { return barriers() + 2 * 8 * kW4MaxStages; }
  constexpr int size() const { return fold_barrier() + kW4FoldBarrierBytes; }
};

struct W4Problem {
  int64_t m;
  int64_t n;
  int64_t k;
  int64_t batch = 1;
  int group = 128;  // 32, 64, 128; 0: a row
  bool has_zero_points = false;
  int num_sms = 132;
  int64_t shared_bytes = 227 * 1024;
  bool is_normed = false;  // every block normalises A first
};

struct W4Plan {
  int tokens;
  int strips;
  int parts;   // of k
  int splits;  // blocks that share the parts of k: a cluster, where tiles are small
  int num_m_tiles;
  int num_n_tiles;
  int num_tiles;  // of all batches
  int num_items;  // a tile's share of k each
  int num_blocks;
  int num_early;  // stages of static codes to load before the kernel in front has finished
  W4Layout layout;
};

// Parts of k: a function of the weight's n and k alone, so that a row of A gives the same bits in
// any batch, by every kernel and on every device. Each part is summed from zero, and the sums are
// added one after another. Few rows have more parts, so that all SMs load; a part is at least 256
// elements long. The rules, for at most most_rows rows, follow times measured with 1 to 256 tokens:
// - 8 parts of 4096 x 14336 are 8 and 10 % faster than 4 with 8 and 16 tokens, but 17 and 20 %
//   slower with 32 and 64. On 4096 x 4096 and 6144 x 4096 they are faster with 8 tokens only.
// - 1 part is 8 and 15 % slower than 2 with 16 tokens of 28672 and 14336 rows, because every block
//   then reads all of A. With 128256 rows it is the fastest for any number of tokens.
struct W4PartsRule {
  int64_t most_rows;
  int parts;
};
inline constexpr W4PartsRule kW4PartsRules[] = {{8192, 4}, {65536, 2}, {INT64_MAX, 1}};
constexpr int choose_w4_parts(int64_t n, int64_t k) {
  int64_t parts = 1;
  for (const W4PartsRule& rule : kW4PartsRules) {
    parts = rule.parts;
    if (n <= rule.most_rows) break;
  }
  while (parts > 1 && k < parts * 2 * kW4StageK) parts /= 2;
  return static_cast<int>(parts);
}

// The first block of 128 of a part; num_k_blocks for the one behind the last.
constexpr int w4_first_k_block(int num_k_blocks, int parts, int part) {
  return part * num_k_blocks / parts;
}

constexpr int choose_w4_tokens(int64_t m) {
  for (const int tokens : kW4Tokens) {
    if (m <= tokens) return tokens;
  }
  return kW4Tokens[std::size(kW4Tokens) - 1];
}

// Blocks that share the parts of k of a large tile: as many as make all SMs finish soonest. A wave
// of blocks was measured to take the time of 8 blocks of k beside its own, and adding up the sums
// of several blocks that of 5.
constexpr int choose_w4_large_splits(int64_t num_tiles, int64_t num_k_blocks, int parts,
                                     int num_sms) {
  int best = 1;
  int64_t best_cost = 0;
  for (int splits = 1; splits <= parts; splits *= 2) {
    if (parts % splits != 0) break;
    const int64_t waves = (num_tiles * splits + num_sms - 1) / num_sms;
    const int64_t cost = waves * ((num_k_blocks + splits - 1) / splits + 8 + (splits > 1 ? 5 : 0));
    if (splits == 1 || cost < best_cost) {
      best = splits;
      best_cost = cost;
    }
  }
  return best;
}

// The strips of a block. With few rows three were measured to be faster than four, and two slower
// than both: m = 64 of 4096 x 14336 takes 22.4, 29.7 and 35.3 us.
constexpr int choose_w4_strips(int64_t n, int tokens) {
  if (tokens > 64) return 2;
  return n <= 4096 ? 3 : 4;
}

// The number of a strip's scales in one stage. There are as many zero points, of a byte each.
constexpr int w4_num_scales(int group) { return group == 0 ? 0 : kW4StageK / group * 64; }
// Bytes of a stage that are set aside for them: enough for 32 bits each, so that offsets are
// constants. 16-bit scales leave half of it unused; as a stage is a whole number of kilobytes, that
// costs memory only with groups of 32 or 64.
constexpr int w4_scale_room(int group) { return w4_num_scales(group) * 4; }

// For sizes of at least 1.
constexpr W4Plan make_w4_plan(const W4Problem& problem, int parts) {
  const auto divide_up = [](int64_t value, int64_t by) { return (value + by - 1) / by; };
  W4Plan plan{};
  plan.tokens = choose_w4_tokens(problem.m);
  plan.parts = parts;
  const int strips = choose_w4_strips(problem.n, plan.tokens);
  plan.strips = strips;
  plan.num_m_tiles = static_cast<int>(divide_up(problem.m, plan.tokens));
  plan.num_n_tiles = static_cast<int>(divide_up(problem.n, 64 * strips));
  plan.num_tiles = static_cast<int>(plan.num_m_tiles * plan.num_n_tiles * problem.batch);
  const bool is_large = plan.tokens == kW4LargeTokens;
  if (is_large) {
    plan.splits =
        choose_w4_large_splits(plan.num_tiles, problem.k / kW4StageK, parts, problem.num_sms);
  } else {
    // A block may also add up the parts of k one after another, which needs no exchange: measured
    // to be faster once a part each makes more than one and a half waves.
    const bool is_whole = 2 * int64_t{plan.num_tiles} * parts > 3 * problem.num_sms;
    plan.splits = is_whole ? 1 : parts;
  }
  // A cluster computes one part of one tile for each of its blocks; other blocks are persistent.
  plan.num_items = plan.num_tiles * plan.splits;
  const bool has_clusters = !is_large && plan.splits > 1;
  plan.num_blocks = has_clusters ? plan.num_items : std::min(plan.num_items, problem.num_sms);
  // A kilobyte for each warp, behind the sums of all units so far if a block has several parts; or
  // the partial sums of a block's share of the units of 16 rows.
  const int64_t units = 4 * strips;
  int64_t fold_units = 0;
  if (has_clusters) {
    fold_units = divide_up(units, parts) * parts;
  } else if (parts > 1 && plan.splits == 1) {
    fold_units = units;
  }
  const int64_t fold_kilobytes = divide_up(fold_units * 16 * plan.tokens * 4, 1024);
  plan.layout.fold_bytes = static_cast<int>(
      (has_clusters ? std::max(units, fold_kilobytes) : fold_kilobytes + units) * 1024);
  const int zero_bytes = problem.has_zero_points ? w4_num_scales(problem.group) : 0;
  const int bytes = plan.tokens * kW4StageK * 2 +
                    strips * (kW4StripBytes + w4_scale_room(problem.group) + zero_bytes);
  plan.layout.stage_bytes = static_cast<int>(divide_up(bytes, 1024) * 1024);
  const int64_t room =
      problem.shared_bytes - plan.layout.fold_bytes - 2 * 8 * kW4MaxStages - kW4FoldBarrierBytes;
  plan.layout.num_stages =
      static_cast<int>(std::min<int64_t>(kW4MaxStages, room / plan.layout.stage_bytes));
  plan.num_early = std::min(kW4EarlyStages, plan.layout.num_stages);
  return plan;
}
constexpr W4Plan plan_w4(const W4Problem& problem) {
  return make_w4_plan(problem, choose_w4_parts(problem.n, problem.k));
}

// [begin, end) of blocks of k, or of units.
struct W4Range {
  int begin;
  int end;
};

}  // namespace tessera::kernels
