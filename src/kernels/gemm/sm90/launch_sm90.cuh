// From checked arguments and a plan to a launch of the Hopper kernel.
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>

#include "kernels/gemm/sm90/gemm_sm90.cuh"
#include "kernels/gemm/sm90/launch_sm90.h"
#include "kernels/launch.h"
#include "tile/tensor_map.h"

namespace tessera::kernels {

// An operand [batch, rows, k] in slabs of 64 of k, as the kernel's coordinates name it: within the
// slab, row, slab, batch. k is a multiple of 64: a slab that k ends in would run into the next row.
inline CUtensorMap operand_map(const TensorView& t, int box_rows, int box_slabs) {
  const bool is_batched = t.rank == 3;
  return tile::make_tensor_map(
      {.data = t.data,
       .dtype = t.dtype,
       .rank = 4,
       .dims = {64, t.size(-2), t.size(-1) / 64, is_batched ? t.size(0) : 1},
       .strides = {1, t.stride(-2), 64, is_batched ? t.stride(0) : t.stride(-2)},
       .box = {64, box_rows, box_slabs, 1},
       .swizzle = tile::Swizzle::b128});
}

// out [batch, m, columns] in boxes of 16 rows.
inline CUtensorMap out_map(const TensorView& t, int box_cols) {
  const bool is_batched = t.rank == 3;
  return tile::make_tensor_map(
      {.data = t.data,
       .dtype = t.dtype,
       .rank = 3,
       .dims = {t.size(-1), t.size(-2), is_batched ? t.size(0) : 1},
       .strides = {1, t.stride(-2), is_batched ? t.stride(0) : t.stride(-2)},
       .box = {box_cols, 16, 1},
       .swizzle = tile::swizzle_of_span(2 * box_cols)});
}

template <class T, class Tile>
void launch_plan(const GemmArgs& args, const Sm90Plan& plan, const Context& ctx) {
  Sm90Params p{};
  p.a = operand_map(args.a, plan.a_rows, Tile::kSlabs);
  p.b = plan.shares_b ? operand_map(args.b, Tile::kCols / 2, 1)
                      : operand_map(args.b, Tile::kCols, Tile::kSlabs);
  if (plan.layout.store_bytes > 0) {
    p.out = out_map(args.out, store_box_cols(args.is_gated ? Tile::kCols / 2 : Tile::kCols));
  }
  p.epilogue = epilogue_params(args);
  p.layout = plan.layout;
  p.num_k_blocks = static_cast<int>(divide_up(args.a.size(-1), Tile::kBlockK));
  p.num_m_tiles = plan.num_m_tiles;
  p.num_n_tiles = plan.num_n_tiles;
  p.num_tiles = plan.num_tiles;
  p.group = plan.group;
  p.a_rows = plan.a_rows;
  p.cluster = plan.cluster;
  p.shares_b = plan.shares_b;
  p.is_b_batched = args.b.rank == 3;
  p.num_early = args.is_b_static ? std::min(plan.num_early, p.num_k_blocks) : 0;
  p.num_by_hand = std::min(plan.num_by_hand, p.num_early);
  p.num_slabs = static_cast<int>(args.a.size(-1) / 64);
  p.a_data = static_cast<const char*>(args.a.data);
  p.a_row_bytes = args.a.stride(-2) * 2;
  p.a_batch_bytes = args.a.rank == 3 ? args.a.stride(0) * 2 : 0;
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(plan.num_blocks)),
                          .block = dim3(Tile::kThreads),
                          .shared_bytes = static_cast<size_t>(plan.layout.size()),
                          .cluster = static_cast<unsigned>(plan.cluster),
                          .overlaps_previous = true};
  launch(&gemm_sm90_kernel<T, Tile>, shape, p, ctx);
}

// The tile of the list that has the plan's shape.
template <class T, class... Tiles>
void launch_listed(Sm90TileList<Tiles...>, const GemmArgs& args, const Sm90Plan& plan,
                   const Context& ctx) {
  const auto matches = [&]<class Tile>() {
    if (plan.shape != shape_of<Tile>()) return false;
    launch_plan<T, Tile>(args, plan, ctx);
    return true;
  };
  const bool is_found = (matches.template operator()<Tiles>() || ...);
  expects(is_found, "gemm: the plan names a tile that is not compiled");
}

template <class T>
void launch_one_warpgroup(const GemmArgs& args, const Sm90Plan& plan, const Context& ctx) {
  launch_listed<T>(Sm90Tiles1{}, args, plan, ctx);
}
template <class T>
void launch_two_warpgroups(const GemmArgs& args, const Sm90Plan& plan, const Context& ctx) {
  launch_listed<T>(Sm90Tiles2{}, args, plan, ctx);
}
template <class T>
void launch_split(const GemmArgs& args, const Sm90Plan& plan, const Context& ctx) {
  launch_listed<T>(Sm90TilesSplit{}, args, plan, ctx);
}

}  // namespace tessera::kernels
