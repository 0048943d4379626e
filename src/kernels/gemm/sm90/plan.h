// How a product is cut for the Hopper kernel: a function of its sizes alone, tested on the CPU.
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "kernels/gemm/sm90/tile.h"

namespace tessera::kernels {

struct Sm90Problem {
  int64_t m;
  int64_t n;
  int64_t k;
  int64_t batch = 1;
  bool is_gated = false;
  bool stages_out = false;  // out can be stored by TMA: 16-bit, aligned
  int num_sms = 132;
  int64_t shared_bytes = 227 * 1024;
};

// The numbers that name an Sm90Tile.
struct Sm90Shape {
  int warpgroups;
  int cols;
  int slabs;

  bool operator==(const Sm90Shape&) const = default;
};
template <class... Tiles>
constexpr auto shapes_of(Sm90TileList<Tiles...>) {
  return std::array{Sm90Shape{Tiles::kWarpgroups, Tiles::kCols, Tiles::kSlabs}...};
}

struct Sm90Plan {
  Sm90Shape shape;
  bool shares_b;  // between the two blocks of a cluster, one below the other
  int group;      // of tiles of m
  int num_early;  // blocks of k of B that may be loaded ahead of the kernel in front
  int a_rows;
  int num_m_tiles;  // of clusters
  int num_n_tiles;
  int num_tiles;
  int num_blocks;
  Sm90Layout layout;
};

constexpr int64_t divide_up(int64_t value, int64_t by) { return (value + by - 1) / by; }

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
  plan.layout.store_bytes = shape.warpgroups == 2 && problem.stages_out && out_cols % 16 == 0
                                ? 4 * shape.warpgroups * kStoreBuffers * kStoreBytes
                                : 0;
  const int64_t stage_bytes = plan.layout.a_slot_bytes + plan.layout.b_slot_bytes;
  const int64_t room = problem.shared_bytes - plan.layout.store_bytes - 2 * 8 * kMaxStages;
  plan.layout.num_stages = static_cast<int>(std::min<int64_t>(kMaxStages, room / stage_bytes));
  const int64_t m_tiles = divide_up(problem.m, rows);
  plan.num_m_tiles = static_cast<int>(shares_b ? divide_up(m_tiles, 2) : m_tiles);
  plan.num_n_tiles = static_cast<int>(divide_up(problem.n, shape.cols));
  plan.num_tiles = static_cast<int>(plan.num_m_tiles * plan.num_n_tiles * problem.batch);
  const int sharers = shares_b ? 2 : 1;
  plan.num_blocks = sharers * std::min(plan.num_tiles, problem.num_sms / sharers);
  plan.group = shares_b ? 8 : 16;
  // More than this only keeps A, for which everyone waits, behind it in the copy engine.
  const int early_bytes = problem.m <= 16 ? 96 * 1024 : 64 * 1024;
  plan.num_early = std::clamp(early_bytes / plan.layout.b_slot_bytes, 1, plan.layout.num_stages);
  return plan;
}

// Cycles of a product with many rows, by what an SM can do: a wgmma of n columns takes n / 2
// cycles, or as long as its operands take to leave shared memory at 128 bytes a cycle; about 52
// bytes a cycle come in. A wave more costs more than any of this.
constexpr int64_t estimate_cycles(const Sm90Problem& problem, Sm90Shape shape) {
  const int64_t rows = 64 * shape.warpgroups;
  const int64_t tiles =
      divide_up(problem.m, rows) * divide_up(problem.n, shape.cols) * problem.batch;
  const int64_t waves = divide_up(tiles, problem.num_sms);
  const int64_t multiply = 4 * shape.warpgroups * std::max(shape.cols / 2, 16 + shape.cols / 4);
  const int64_t load = (std::min(rows, problem.m) + shape.cols) * kSlabBytes / 52;
  const int64_t per_tile = divide_up(problem.k, 64) * std::max(multiply, load) + 2500;
  return waves * per_tile;
}

// Few rows: reading B is all that counts. Cut it so that the SMs get equal shares, in one wave or
// two; where there are many waves their evenness matters less than long copies.
constexpr Sm90Shape choose_shape_for_few(const Sm90Problem& problem) {
  const bool is_fewest = problem.m <= 32;
  const auto with_slabs = [&](int cols) {
    if (cols <= 64) return Sm90Shape{1, cols, is_fewest ? 4 : 2};
    if (cols == 112) return Sm90Shape{1, cols, problem.m <= 8 ? 1 : 2};
    return Sm90Shape{1, cols, cols <= 128 ? 2 : 1};
  };
  int best = 192;
  int64_t fewest = INT64_MAX;
  for (const int cols : {192, 128, 112, 96, 64, 48, 32}) {
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
  int64_t fewest = INT64_MAX;
  const auto consider = [&](Sm90Shape shape) {
    const int64_t cycles = estimate_cycles(problem, shape);
    if (cycles >= fewest) return;
    fewest = cycles;
    best = shape;
  };
  for (const Sm90Shape shape : shapes_of(Sm90Tiles2{})) consider(shape);
  for (const int cols : {64, 96, 128}) consider({1, cols, 2});
  return best;
}

// For m, n, k and batch of at least 1.
constexpr Sm90Plan plan_sm90(const Sm90Problem& problem) {
  const Sm90Shape shape =
      problem.m <= 64 ? choose_shape_for_few(problem) : choose_shape_for_many(problem);
  // Two blocks that share B save reads of L2, and with them power, where the product is large.
  const int64_t m_tiles = divide_up(problem.m, 64 * shape.warpgroups);
  const bool shares_b =
      shape.cols >= 192 && m_tiles >= 4 && m_tiles % 2 == 0 && problem.num_sms >= 2;
  return make_plan(problem, shape, shares_b);
}

}  // namespace tessera::kernels
