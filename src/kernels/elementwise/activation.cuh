// Activations, plain or gating a second tensor.
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/activation_functions.cuh"
#include "kernels/divisor.h"
#include "kernels/elementwise/item_grid.cuh"
#include "kernels/elementwise/launch.h"
#include "kernels/launch.h"
#include "kernels/with_constant.h"
#include "tile/arch.cuh"
#include "tile/vec.cuh"

namespace tessera::kernels {

// Plain data, copied by value into constant memory. Strides count elements from row to row.
struct ActivationParams {
  const void* x;   // [rows, cols]
  const void* up;  // [rows, cols]; null: none
  void* out;       // [rows, cols]

  int64_t x_stride;
  int64_t up_stride;
  int64_t out_stride;
  uint32_t num_vecs;     // of all rows together; at least 1
  Divisor vecs_per_row;  // cols / kVec, without a remainder
};
static_assert(std::is_trivially_copyable_v<ActivationParams>);

// Vectors of each input per thread: 64 bytes in flight in total, with one input or two.
template <bool kHasUp>
inline constexpr int kActivationVecs = kHasUp ? 2 : 4;

// An activation, gated or not.
//
//   out = f(x) * up          or          out = f(x)
//
// Work      A thread owns 2 vectors of x and of up (4 of x where there is no up), a block's width
//           apart, among the vectors of all rows numbered in order.
// Pipeline  All loads of a thread are issued before the first use, without branches: an index
//           beyond the end loads the last vector again. Many blocks on an SM overlap.
// Output    Computed in float and rounded once. Out may be x or up: a thread has read its elements
//           before it writes them, and those beyond the end are not written.
// Cost      6 bytes per element in bf16 with up, 4 without; about 10 flop and 2 special functions.
//           Bandwidth is the limit. docs/kernels/elementwise.md
// Needs     kVec > 1: rows that start on 16 bytes, a multiple of kVec long. kVec == 1: nothing.
template <class Arch, class T, Activation kKind, bool kHasUp, int kVec>
__global__ void __launch_bounds__(kItemThreads)
    activation_kernel(const __grid_constant__ ActivationParams p) {
  using Vec = tile::Vec<T, kVec>;
  constexpr int kVecs = kActivationVecs<kHasUp>;
  tile::wait_for_previous(Arch{});
  tile::release_next(Arch{});

  Vec x[kVecs];
  Vec up[kVecs];
  TESSERA_UNROLL
  for (int u = 0; u < kVecs; ++u) {
    const uint32_t vec_idx = min(item_index<kVecs>(u), p.num_vecs - 1);
    const auto [row_idx, vec_in_row] = divide_with_remainder(vec_idx, p.vecs_per_row);
    const uint32_t col_idx = vec_in_row * kVec;
    x[u] = Vec::load(static_cast<const T*>(p.x) + row_idx * p.x_stride + col_idx);
    if constexpr (kHasUp) {
      up[u] = Vec::load(static_cast<const T*>(p.up) + row_idx * p.up_stride + col_idx);
    }
  }
  TESSERA_UNROLL
  for (int u = 0; u < kVecs; ++u) {
    const uint32_t vec_idx = item_index<kVecs>(u);
    if (vec_idx >= p.num_vecs) return;
    float values[kVec];
    x[u].to_floats(values);
    TESSERA_UNROLL
    for (int i = 0; i < kVec; ++i) {
      values[i] = activate<kKind, T>(values[i]);
      if constexpr (kHasUp) values[i] *= tile::to_float(up[u].values[i]);
    }
    const auto [row_idx, vec_in_row] = divide_with_remainder(vec_idx, p.vecs_per_row);
    const uint32_t col_idx = vec_in_row * kVec;
    Vec::from_floats(values).store(static_cast<T*>(p.out) + row_idx * p.out_stride + col_idx);
  }
}

// The columns from begin_col to end_col of every row; several launches if 32-bit indices need it.
template <class Arch, class T, Activation kKind, bool kHasUp, int kVec>
void launch_activation_columns(const ActivationParams& whole, int64_t num_rows, int64_t begin_col,
                               int64_t end_col, const Context& ctx) {
  if (begin_col == end_col) return;
  const int64_t piece_cols = std::min(end_col - begin_col, kMaxItems * kVec);
  const int64_t piece_rows = std::max(kMaxItems * kVec / piece_cols, int64_t{1});
  for (int64_t row = 0; row < num_rows; row += piece_rows) {
    for (int64_t col = begin_col; col < end_col; col += piece_cols) {
      ActivationParams p = whole;
      p.x = static_cast<const T*>(p.x) + row * p.x_stride + col;
      if (kHasUp) p.up = static_cast<const T*>(p.up) + row * p.up_stride + col;
      p.out = static_cast<T*>(p.out) + row * p.out_stride + col;
      const int64_t vecs_per_row = std::min(piece_cols, end_col - col) / kVec;
      p.vecs_per_row = make_divisor(vecs_per_row);
      p.num_vecs = static_cast<uint32_t>(std::min(piece_rows, num_rows - row) * vecs_per_row);
      launch(&activation_kernel<Arch, T, kKind, kHasUp, kVec>,
             item_shape<Arch>(p.num_vecs, kActivationVecs<kHasUp>), p, ctx);
    }
  }
}

// Whole vectors if rows are aligned; the end of each row, or all of it, element by element.
template <class Arch, class T, Activation kKind, bool kHasUp>
void launch_activation_kind(const ActivationParams& p, int64_t num_rows, int64_t num_cols,
                            const Context& ctx) {
  constexpr int kVec = tile::kVecSize<T>;
  constexpr int64_t kWorthTwoLaunches = 1 << 17;  // elements; below it a launch costs more
  const bool is_aligned = starts_on_vectors<T>(p.x, p.x_stride) &&
                          starts_on_vectors<T>(p.up, p.up_stride) &&
                          starts_on_vectors<T>(p.out, p.out_stride);
  const bool is_ragged = num_cols % kVec != 0;
  const bool use_vectors = is_aligned && (!is_ragged || num_rows * num_cols >= kWorthTwoLaunches);
  const int64_t split = use_vectors ? num_cols - num_cols % kVec : 0;
  launch_activation_columns<Arch, T, kKind, kHasUp, kVec>(p, num_rows, 0, split, ctx);
  launch_activation_columns<Arch, T, kKind, kHasUp, 1>(p, num_rows, split, num_cols, ctx);
}

template <class Arch, class T>
void launch_activation(const ActivationArgs& args, const Context& ctx) {
  const Rows x = as_rows(args.x, "activation: x");
  const Rows up = args.up ? as_rows(*args.up, "activation: up") : x;
  const Rows out = as_rows(args.out, "activation: out");
  int64_t num_rows = x.num_rows;
  int64_t num_cols = x.num_cols;
  if (num_rows == 0 || num_cols == 0) return;
  ActivationParams p{.x = args.x.data,
                     .up = args.up ? args.up->data : nullptr,
                     .out = args.out.data,
                     .x_stride = x.row_stride,
                     .up_stride = args.up ? up.row_stride : 0,
                     .out_stride = out.row_stride};
  const auto is_dense = [&](const Rows& rows) {
    return num_rows == 1 || rows.row_stride == num_cols;
  };
  if (is_dense(x) && is_dense(up) && is_dense(out)) {  // one long row: only its end can be ragged
    num_cols *= num_rows;
    num_rows = 1;
    p.x_stride = p.up_stride = p.out_stride = 0;
  }
  using enum Activation;
  with_constant<relu, silu, gelu, gelu_tanh>(args.kind, [&](auto kind) {
    with_constant<true, false>(args.up.has_value(), [&](auto has_up) {
      launch_activation_kind<Arch, T, kind(), has_up()>(p, num_rows, num_cols, ctx);
    });
  });
}

}  // namespace tessera::kernels
