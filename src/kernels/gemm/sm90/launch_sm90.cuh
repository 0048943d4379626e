// From checked arguments and a plan to a launch of the Hopper kernel.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/gemm/sm90/gemm_sm90.cuh"
#include "kernels/gemm/sm90/plan.h"
#include "kernels/launch.h"
#include "tile/tensor_map.h"

namespace tessera::kernels {

// A map over [batch, rows, cols] of boxes of `box_rows` rows by `box_cols` columns.
inline CUtensorMap matrix_map(const TensorView& t, int box_cols, int box_rows,
                              tile::Swizzle swizzle) {
  tile::TensorMapSpec spec{.data = t.data, .dtype = t.dtype, .rank = 3, .swizzle = swizzle};
  const bool is_batched = t.rank == 3;
  spec.dims[0] = t.size(-1);
  spec.dims[1] = t.size(-2);
  spec.dims[2] = is_batched ? t.size(0) : 1;
  spec.strides[0] = 1;
  spec.strides[1] = t.stride(-2);
  spec.strides[2] = is_batched ? t.stride(0) : t.stride(-2);
  spec.box[0] = box_cols;
  spec.box[1] = box_rows;
  spec.box[2] = 1;
  return tile::make_tensor_map(spec);
}

constexpr int box_cols(int out_cols) {
  return out_cols % 64 == 0 ? 64 : out_cols % 32 == 0 ? 32 : 16;
}
constexpr tile::Swizzle box_swizzle(int cols) {
  return cols == 64 ? tile::Swizzle::b128 : cols == 32 ? tile::Swizzle::b64 : tile::Swizzle::b32;
}

template <class T, class Tile>
void launch_plan(const GemmArgs& args, const Sm90Plan& plan, const Context& ctx) {
  Sm90Params p{};
  const auto rows_of = [&](Share operand, int rows) {
    return plan.share == operand ? rows / 2 : rows;
  };
  p.a = matrix_map(args.a, 64, rows_of(Share::a, plan.a_rows), tile::Swizzle::b128);
  p.b = matrix_map(args.b, 64, rows_of(Share::b, Tile::kCols), tile::Swizzle::b128);
  if (plan.layout.store_bytes > 0) {
    const int cols = box_cols(args.is_gated ? Tile::kCols / 2 : Tile::kCols);
    p.out = matrix_map(args.out, cols, 16, box_swizzle(cols));
  }
  p.epilogue = epilogue_params(args);
  p.layout = plan.layout;
  p.num_k_blocks = static_cast<int>(divide_up(args.a.size(-1), Tile::kBlockK));
  p.num_m_tiles = plan.num_m_tiles;
  p.num_n_tiles = plan.num_n_tiles;
  p.num_tiles = plan.num_tiles;
  p.group = plan.group;
  p.a_rows = plan.a_rows;
  p.share = plan.share;
  p.is_b_batched = args.b.rank == 3;
  p.is_b_static = args.is_b_static;
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(plan.num_blocks)),
                          .block = dim3(Tile::kThreads),
                          .shared_bytes = static_cast<size_t>(plan.layout.size()),
                          .cluster = plan.share == Share::none ? 1u : 2u,
                          .overlaps_previous = true};
  launch(&gemm_sm90_kernel<T, Tile>, shape, p, ctx);
}

}  // namespace tessera::kernels
