// How a product is cut for the Hopper kernel: a function of its sizes alone, tested on the CPU.
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/gemm/sm90/share.h"
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

struct Sm90Plan {
  int warpgroups;
  int cols;
  int slabs;
  Share share;
  int group;  // of tiles of m
  int a_rows;
  int num_m_tiles;  // of clusters
  int num_n_tiles;
  int num_tiles;
  int num_blocks;
  Sm90Layout layout;
};

constexpr int64_t divide_up(int64_t value, int64_t by) { return (value + by - 1) / by; }

// The plan for a tile of this many warpgroups and columns.
constexpr Sm90Plan make_plan(const Sm90Problem& problem, int warpgroups, int cols, int slabs,
                             Share share, int64_t most_shared_bytes) {
  Sm90Plan plan{.warpgroups = warpgroups, .cols = cols, .slabs = slabs, .share = share};
  const int rows = 64 * warpgroups;
  const int a_step = share == Share::a ? 16 : 8;
  plan.a_rows = static_cast<int>(std::min<int64_t>(rows, divide_up(problem.m, a_step) * a_step));
  const int out_cols = problem.is_gated ? cols / 2 : cols;
  plan.layout.a_slot_bytes = plan.a_rows * kSlabBytes * slabs;
  plan.layout.b_slot_bytes = cols * kSlabBytes * slabs;
  plan.layout.store_bytes = warpgroups == 2 && problem.stages_out && out_cols % 16 == 0
                                ? 4 * warpgroups * kStoreBuffers * kStoreBytes
                                : 0;
  const int64_t stage_bytes = plan.layout.a_slot_bytes + plan.layout.b_slot_bytes;
  const int64_t room = std::min(most_shared_bytes, problem.shared_bytes) - plan.layout.store_bytes -
                       2 * 8 * kMaxStages;
  plan.layout.num_stages = static_cast<int>(std::min<int64_t>(kMaxStages, room / stage_bytes));
  const int64_t m_tiles = divide_up(problem.m, rows);
  const int64_t n_tiles = divide_up(problem.n, cols);
  plan.num_m_tiles = static_cast<int>(share == Share::b ? divide_up(m_tiles, 2) : m_tiles);
  plan.num_n_tiles = static_cast<int>(share == Share::a ? divide_up(n_tiles, 2) : n_tiles);
  plan.num_tiles = static_cast<int>(plan.num_m_tiles * plan.num_n_tiles * problem.batch);
  const int sharers = share == Share::none ? 1 : 2;
  plan.num_blocks = sharers * std::min(plan.num_tiles, problem.num_sms / sharers);
  plan.group = share == Share::b ? 8 : 16;
  return plan;
}

}  // namespace tessera::kernels
