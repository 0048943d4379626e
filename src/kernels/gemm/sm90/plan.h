// How a product is cut for the Hopper kernel: the compiled tiles, the layout of shared memory and
// the choice among them, a function of the product's sizes alone; and the launchers it is made for.
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "kernels/gemm/normed.h"

namespace tessera {
struct Context;
struct GemmArgs;
struct RmsNormArgs;
}  // namespace tessera

namespace tessera::kernels {

// A thread block computes kRows x kCols of the product. A warpgroup holds 64 rows in registers; a
// block has one or two of them, and producers besides. A stage of the ring holds kSlabs slabs of
// 128 bytes of k, the width of the swizzle, of both operands: 64 16-bit elements or 128 8-bit ones.
// With kSplits == 2 the two blocks of a cluster share one tile, and each multiplies half of k. With
// kPromotes the sums of each stage, kPromotedK codes of k, are added up in float.
template <int kWarpgroups_, int kCols_, int kSlabs_, int kSplits_ = 1, bool kPromotes_ = false>
struct Sm90Tile {
  static constexpr int kWarpgroups = kWarpgroups_;
  static constexpr int kRows = 64 * kWarpgroups_;
  static constexpr int kCols = kCols_;
  static constexpr int kSlabs = kSlabs_;
  static constexpr int kSplits = kSplits_;
  static constexpr bool kPromotes = kPromotes_;
  // setmaxnreg moves registers between whole warpgroups: two consumer warpgroups get enough only if
  // the producers are a whole warpgroup too and give theirs away.
  static constexpr bool kMovesRegisters = kWarpgroups_ == 2;
  // Whether results may pass through shared memory, to be stored by TMA.
  static constexpr bool kStages = kWarpgroups_ == 2 && kSplits_ == 1;
  static constexpr int kThreads = 128 * kWarpgroups_ + (kMovesRegisters ? 128 : 32);
  // Tiles that promote: blocks of 128 of b's rows that a tile has a part of, and whether two
  // warpgroups multiply in turns.
  static constexpr int kScaledBlocks = 128 % kCols_ == 0 ? 1 : 2;
  static constexpr bool kTakesTurns = kPromotes_ && kWarpgroups_ == 2;
  static_assert(kCols % 16 == 0 && kCols <= 256);
  static_assert(!kPromotes_ || (kSlabs_ == 1 && (128 % kCols_ == 0 || kCols_ == 192)));
};
inline constexpr int kPromotedK = 128;  // elements of k that a tile adds up before it promotes

// The shapes that are compiled. One warpgroup serves few rows; its column counts make the tiles of
// common layers fill the SMs in one wave. Two warpgroups serve many rows.
template <class... Tiles>
struct Sm90TileList {};
using Sm90Tiles1 =
    Sm90TileList<Sm90Tile<1, 32, 2>, Sm90Tile<1, 32, 4>, Sm90Tile<1, 48, 2>, Sm90Tile<1, 48, 4>,
                 Sm90Tile<1, 64, 2>, Sm90Tile<1, 64, 4>, Sm90Tile<1, 96, 2>, Sm90Tile<1, 112, 1>,
                 Sm90Tile<1, 112, 2>, Sm90Tile<1, 128, 2>, Sm90Tile<1, 192, 1>>;
using Sm90Tiles2 = Sm90TileList<Sm90Tile<2, 32, 2>, Sm90Tile<2, 48, 2>, Sm90Tile<2, 64, 2>,
                                Sm90Tile<2, 96, 1>, Sm90Tile<2, 128, 1>, Sm90Tile<2, 160, 1>,
                                Sm90Tile<2, 192, 1>, Sm90Tile<2, 224, 1>, Sm90Tile<2, 256, 1>>;
// For products with too few tiles to keep every SM, or its memory traffic, busy.
using Sm90TilesSplit =
    Sm90TileList<Sm90Tile<2, 64, 1, 2>, Sm90Tile<2, 96, 1, 2>, Sm90Tile<2, 128, 1, 2>>;

// For 8-bit codes: fewer shapes, each good for several sizes. Integers have none of 256 columns,
// whose sums and their floats would not fit into registers.
using Sm90TilesCodes1 = Sm90TileList<Sm90Tile<1, 32, 2>, Sm90Tile<1, 32, 4>, Sm90Tile<1, 48, 2>,
                                     Sm90Tile<1, 48, 4>, Sm90Tile<1, 64, 2>, Sm90Tile<1, 64, 4>,
                                     Sm90Tile<1, 96, 2>, Sm90Tile<1, 112, 2>, Sm90Tile<1, 128, 2>>;
using Sm90TilesInt8 = Sm90TileList<Sm90Tile<2, 64, 2>, Sm90Tile<2, 96, 1>, Sm90Tile<2, 128, 1>,
                                   Sm90Tile<2, 192, 1>, Sm90Tile<2, 224, 1>>;
using Sm90TilesFp8 = Sm90TileList<Sm90Tile<2, 64, 2>, Sm90Tile<2, 96, 1>, Sm90Tile<2, 128, 1>,
                                  Sm90Tile<2, 192, 1>, Sm90Tile<2, 224, 1>, Sm90Tile<2, 256, 1>>;
// For unsigned codes of A, whose zero points take registers.
using Sm90TilesUnsigned = Sm90TileList<Sm90Tile<1, 64, 2>, Sm90Tile<2, 128, 1>>;
using Sm90TilesPromoted = Sm90TileList<Sm90Tile<1, 32, 1, 1, true>, Sm90Tile<1, 64, 1, 1, true>,
                                       Sm90Tile<2, 128, 1, 1, true>, Sm90Tile<2, 192, 1, 1, true>>;

inline constexpr int kSlabBytes = 128;  // one row of a slab
inline constexpr int kMaxStages = 24;
inline constexpr int kFirstAPieces = 4;  // pieces of 16 bytes that a consumer loads without TMA
// Each consumer warp stages 16 rows of out at a time, in two buffers.
inline constexpr int kStoreBytes = 16 * 128;
inline constexpr int kStoreBuffers = 2;

// Columns of a staged box: the widest that divides the columns of the tile's results.
constexpr int store_box_cols(int out_cols) {
  return out_cols % 64 == 0 ? 64 : out_cols % 32 == 0 ? 32 : 16;
}

// Offsets in shared memory. The slots of A come first: if they hold fewer than 64 rows, wgmma reads
// on into what follows, and the rows computed from that are not stored. A has a slot in each stage,
// or, where the kernel normalises it, one for each block of k.
struct Sm90Layout {
  int a_slot_bytes;
  int b_slot_bytes;
  int num_stages;
  int num_a_slots;
  int store_bytes;      // staging buffers of all warps; 0: results are stored from registers
  int reduction_bytes;  // of a norm in front of the product; 0: there is none

  constexpr int a(int slot) const { return store_bytes + slot * a_slot_bytes; }
  constexpr int b(int stage) const { return a(num_a_slots) + stage * b_slot_bytes; }
  constexpr int barriers() const { return b(num_stages); }
  constexpr int reductions() const { return barriers() + 2 * 8 * kMaxStages; }
  constexpr int size() const { return reductions() + reduction_bytes; }
};

// What the operands are: 16-bit values, 8-bit codes of a kind, or codes whose sums are promoted.
enum class Sm90Operands : uint8_t { values, fp8, int8, unsigned_int8, promoted };

struct Sm90Problem {
  int64_t m;
  int64_t n;
  int64_t k;  // in units of 2 bytes: half the elements of codes
  int64_t batch = 1;
  bool is_gated = false;
  bool stages_out = false;  // out can be stored by TMA: 16-bit, aligned
  int num_sms = 132;
  int64_t shared_bytes = 227 * 1024;
  Sm90Operands operands = Sm90Operands::values;
  bool is_normed = false;  // every block normalises A and keeps it
};

// The numbers that name an Sm90Tile.
struct Sm90Shape {
  int warpgroups;
  int cols;
  int slabs;
  int splits = 1;
  bool promotes = false;

  bool operator==(const Sm90Shape&) const = default;
};
template <class Tile>
constexpr Sm90Shape shape_of() {
  return {Tile::kWarpgroups, Tile::kCols, Tile::kSlabs, Tile::kSplits, Tile::kPromotes};
}
template <class... Tiles>
constexpr auto shapes_of(Sm90TileList<Tiles...>) {
  return std::array{shape_of<Tiles>()...};
}

struct Sm90Plan {
  Sm90Shape shape;
  bool shares_b;    // the two blocks of a cluster have tiles one below the other and share B
  int cluster;      // blocks in a cluster
  int group;        // tiles of m walked before the next tile of n
  int num_early;    // stages of a static B loaded before the kernel in front has finished
  int num_by_hand;  // of these, stages whose A the consumers load without TMA
  int a_rows;
  int num_m_tiles;  // with shares_b: pairs of tiles
  int num_n_tiles;
  int num_tiles;
  int num_blocks;
  Sm90Layout layout;
};

constexpr int64_t divide_up(int64_t value, int64_t by) { return (value + by - 1) / by; }

// Bytes of B loaded before the kernel in front has finished. More was measured to be slower: A,
// for which all consumers wait, then queues behind B in the TMA unit, and the more so the more rows
// it has.
constexpr int early_bytes(const Sm90Problem& problem, Sm90Shape shape) {
  const bool is_wide = shape.cols > 64;
  if (problem.m <= 16) return (is_wide ? 128 : 96) * 1024;
  return (is_wide || problem.m <= 32 ? 64 : 32) * 1024;
}

// The plan for one shape of tile.
constexpr Sm90Plan make_plan(const Sm90Problem& problem, Sm90Shape shape, bool shares_b) {
  Sm90Plan plan{};
  plan.shape = shape;
  plan.shares_b = shares_b;
  const int rows = 64 * shape.warpgroups;
  plan.a_rows = static_cast<int>(std::min<int64_t>(rows, divide_up(problem.m, 8) * 8));
  const int out_cols = problem.is_gated ? shape.cols / 2 : shape.cols;
  plan.layout.a_slot_bytes = plan.a_rows * kSlabBytes * shape.slabs;
  plan.layout.b_slot_bytes = shape.cols * kSlabBytes * shape.slabs;
  const bool stages_out = shape.warpgroups == 2 && shape.splits == 1 && problem.stages_out;
  plan.layout.store_bytes =
      stages_out && out_cols % 16 == 0 ? 4 * shape.warpgroups * kStoreBuffers * kStoreBytes : 0;
  plan.layout.reduction_bytes = problem.is_normed ? kReductionBytes : 0;
  const int64_t room = problem.shared_bytes - plan.layout.store_bytes - 2 * 8 * kMaxStages -
                       plan.layout.reduction_bytes;
  const auto stages_in = [](int64_t bytes, int64_t stage_bytes) {
    return static_cast<int>(std::clamp<int64_t>(bytes / stage_bytes, 0, kMaxStages));
  };
  if (problem.is_normed) {
    plan.layout.num_a_slots = static_cast<int>(divide_up(problem.k, 64 * shape.slabs));
    plan.layout.num_stages =
        stages_in(room - int64_t{plan.layout.num_a_slots} * plan.layout.a_slot_bytes,
                  plan.layout.b_slot_bytes);
  } else {
    plan.layout.num_stages = stages_in(room, plan.layout.a_slot_bytes + plan.layout.b_slot_bytes);
    plan.layout.num_a_slots = plan.layout.num_stages;
  }
  const int64_t m_tiles = divide_up(problem.m, rows);
  plan.num_m_tiles = static_cast<int>(shares_b ? divide_up(m_tiles, 2) : m_tiles);
  plan.num_n_tiles = static_cast<int>(divide_up(problem.n, shape.cols));
  plan.num_tiles = static_cast<int>(plan.num_m_tiles * plan.num_n_tiles * problem.batch);
  plan.cluster = shares_b ? 2 : shape.splits;
  // A cluster that splits k computes one tile; the others are persistent.
  plan.num_blocks =
      plan.cluster * (shape.splits > 1 ? plan.num_tiles
                                       : std::min(plan.num_tiles, problem.num_sms / plan.cluster));
  plan.group = shares_b ? 8 : 16;
  plan.num_early = std::clamp(early_bytes(problem, shape) / plan.layout.b_slot_bytes, 1,
                              std::max(plan.layout.num_stages, 1));
  if (shape.warpgroups == 1 && !problem.is_normed) {
    constexpr int64_t kHandBytes = 128 * kFirstAPieces * 16;
    const int64_t num_filled = kHandBytes / (problem.m * kSlabBytes * shape.slabs);
    plan.num_by_hand = static_cast<int>(std::min<int64_t>(plan.num_early, num_filled));
  }
  return plan;
}

// Estimated cycles of a product with many rows. A wgmma of n columns takes n / 2 cycles, or as long
// as reading its operands from shared memory at 128 bytes per cycle; an SM receives about 52 bytes
// per cycle. The number of waves weighs most.
constexpr int64_t estimate_cycles(const Sm90Problem& problem, Sm90Shape shape) {
  const int64_t rows = 64 * shape.warpgroups;
  const int64_t tiles =
      divide_up(problem.m, rows) * divide_up(problem.n, shape.cols) * problem.batch;
  const int64_t waves = divide_up(tiles, problem.num_sms / shape.splits);
  const int64_t multiply = 4 * shape.warpgroups * std::max(shape.cols / 2, 16 + shape.cols / 4);
  const int64_t load = (std::min(rows, problem.m) + shape.cols) * kSlabBytes / 52;
  // Cost of adding the halves, fitted to measurements with 64 to 128 columns.
  const int64_t fold = shape.splits > 1 ? shape.cols * shape.cols / 4 : 0;
  const int64_t blocks = divide_up(divide_up(problem.k, 64), shape.splits);
  return waves * (blocks * std::max(multiply, load) + 2500 + fold);
}
// Cycles that device memory needs for all operands and the result.
constexpr int64_t estimate_memory_cycles(const Sm90Problem& problem) {
  constexpr int64_t kBytesPerCycle = 2450;
  const int64_t elements = problem.m * problem.k + problem.n * problem.k + problem.m * problem.n;
  return problem.batch * 2 * elements / kBytesPerCycle;
}

// Few rows: the time is that of reading B. Cut it so that all SMs get equal shares within three
// waves; with more waves, long copies matter more than equal shares.
constexpr Sm90Shape choose_shape_for_few(const Sm90Problem& problem) {
  if (problem.operands == Sm90Operands::unsigned_int8) return {1, 64, 2};
  const bool is_fewest = problem.m <= 32;
  const bool has_values = problem.operands == Sm90Operands::values;
  const bool promotes = problem.operands == Sm90Operands::promoted;
  const auto with_slabs = [&](int cols) {
    if (promotes) return Sm90Shape{1, cols, 1, 1, true};
    if (cols <= 64) return Sm90Shape{1, cols, is_fewest ? 4 : 2};
    return Sm90Shape{1, cols, cols <= 128 ? 2 : 1};
  };
  int best = has_values ? 112 : promotes ? 64 : 128;
  int64_t fewest = INT64_MAX;
  for (const int cols : {192, 128, 112, 96, 64, 48, 32}) {
    if (!has_values && cols == 192) continue;
    if (promotes && cols != 64 && cols != 32) continue;
    const int64_t waves = divide_up(divide_up(problem.n, cols) * problem.batch, problem.num_sms);
    if (waves > 3) continue;
    if (waves * cols < fewest) {
      fewest = waves * cols;
      best = cols;
    }
  }
  return with_slabs(best);
}

constexpr Sm90Shape choose_shape_for_many(const Sm90Problem& problem) {
  Sm90Shape best{2, 128, 1};
  if (problem.operands == Sm90Operands::unsigned_int8) return best;
  int64_t fewest = INT64_MAX;
  const auto consider = [&](Sm90Shape shape) {
    const int64_t cycles = estimate_cycles(problem, shape);
    if (cycles >= fewest) return;
    fewest = cycles;
    best = shape;
  };
  if (problem.operands == Sm90Operands::promoted) {
    for (const Sm90Shape shape : shapes_of(Sm90TilesPromoted{})) consider(shape);
    return best;
  }
  if (problem.operands != Sm90Operands::values) {
    for (const Sm90Shape shape : shapes_of(Sm90TilesCodes1{})) consider(shape);
  }
  if (problem.operands == Sm90Operands::fp8) {
    for (const Sm90Shape shape : shapes_of(Sm90TilesFp8{})) consider(shape);
    return best;
  }
  if (problem.operands == Sm90Operands::int8) {
    for (const Sm90Shape shape : shapes_of(Sm90TilesInt8{})) consider(shape);
    return best;
  }
  for (const Sm90Shape shape : shapes_of(Sm90Tiles2{})) consider(shape);
  for (const int cols : {64, 96, 128}) consider({1, cols, 2});
  return best;
}

// For m, n, k and batch of at least 1.
constexpr Sm90Plan plan_sm90(const Sm90Problem& problem) {
  const Sm90Shape shape =
      problem.m <= 64 ? choose_shape_for_few(problem) : choose_shape_for_many(problem);
  // In large products, blocks that share B save L2 reads, and with them power.
  const int64_t m_tiles = divide_up(problem.m, 64 * shape.warpgroups);
  const bool shares_b = (shape.cols >= 192 || (shape.promotes && shape.cols == 128)) &&
                        m_tiles >= 4 && m_tiles % 2 == 0 && problem.num_sms >= 2;
  return make_plan(problem, shape, shares_b);
}

// A plan that splits k, if the estimate says it is faster by at least a twelfth. Up to 64 rows it
// never is: memory is the limit there, and one wave reads all of B.
constexpr std::optional<Sm90Plan> plan_sm90_split(const Sm90Problem& problem) {
  if (problem.m <= 64 || problem.k < 2048) return std::nullopt;
  const int64_t memory = estimate_memory_cycles(problem);
  const int64_t whole = std::max(memory, estimate_cycles(problem, choose_shape_for_many(problem)));
  Sm90Shape best{};
  int64_t fewest = whole * 11 / 12;
  for (const Sm90Shape shape : shapes_of(Sm90TilesSplit{})) {
    if (problem.num_sms < shape.splits) continue;
    const int64_t cycles = std::max(memory, estimate_cycles(problem, shape));
    if (cycles >= fewest) continue;
    fewest = cycles;
    best = shape;
  }
  if (best.cols == 0) return std::nullopt;
  return make_plan(problem, best, false);
}

// Null: with A beside them too few stages are left, or k is no whole number of them.
constexpr std::optional<Sm90Plan> plan_sm90_normed(Sm90Problem problem) {
  constexpr int kLeastStages = 4;
  problem.is_normed = true;
  const Sm90Plan plan = plan_sm90(problem);
  if (plan.shape.warpgroups != 1 || plan.shape.promotes) return std::nullopt;
  if (problem.k % (64 * plan.shape.slabs) != 0) return std::nullopt;
  if (plan.layout.num_stages < kLeastStages) return std::nullopt;
  return plan;
}

// Whether cuBLASLt was measured to be faster, by 2 to 15 %. Up to 1024 rows this kernel has too few
// tiles to fill the GPU or to hide the fold; beyond, for k up to most_k, cuBLASLt's larger tiles
// win.
constexpr bool is_better_yielded(const Sm90Problem& problem) {
  struct Range {
    int64_t least_n, most_n;
    int64_t least_m, most_m;
    int64_t most_k;
  };
  constexpr Range kRanges[] = {{1, 4096, 129, 1024, INT64_MAX},
                               {4097, 8192, 65, 1024, INT64_MAX},
                               {4097, 32768, 1024, 4096, 4096},
                               {32769, INT64_MAX, 512, 1024, 4096}};
  if (problem.batch > 1) return false;
  for (const Range& range : kRanges) {
    if (problem.n >= range.least_n && problem.n <= range.most_n && problem.m >= range.least_m &&
        problem.m <= range.most_m && problem.k <= range.most_k) {
      return true;
    }
  }
  return false;
}

// The launchers of the Hopper kernel (gemm_sm90.cuh), one for each list of tiles. T is the type of
// a; every type of out is stored. The plan's shape is one of the list. `norm`: made inside, by a
// plan for it; null: none.
template <class T>
void launch_one_warpgroup(const GemmArgs& args, const RmsNormArgs* norm, const Sm90Plan& plan,
                          const Context& ctx);
template <class T>
void launch_two_warpgroups(const GemmArgs& args, const Sm90Plan& plan, const Context& ctx);
template <class T>
void launch_split(const GemmArgs& args, const Sm90Plan& plan, const Context& ctx);
// For codes of type In; T is the type of bias, residual and 16-bit results.
template <class In, class T>
void launch_codes_1(const GemmArgs& args, const RmsNormArgs* norm, const Sm90Plan& plan,
                    const Context& ctx);
template <class In, class T>
void launch_codes_2(const GemmArgs& args, const Sm90Plan& plan, const Context& ctx);
template <class T>
void launch_unsigned(const GemmArgs& args, const Sm90Plan& plan, const Context& ctx);
template <class In, class T>
void launch_promoted(const GemmArgs& args, const Sm90Plan& plan, const Context& ctx);

}  // namespace tessera::kernels
