// Copies that convert: rows of one floating-point type to rows of another.
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/divisor.h"
#include "kernels/elementwise/item_grid.cuh"
#include "kernels/elementwise/launch.h"
#include "kernels/launch.h"
#include "kernels/with_constant.h"
#include "tile/arch.cuh"
#include "tile/vec.cuh"

namespace tessera::kernels {

// Plain data, copied by value into constant memory. Strides count elements.
struct ConvertParams {
  const void* x;     // [num_rows, num_cols]
  void* out;         // [num_rows, num_cols]
  int64_t x_stride;  // from one row to the next
  int64_t out_stride;
  int64_t num_cols;
  uint32_t num_vecs;  // of all rows
  Divisor vecs_per_row;
};
static_assert(std::is_trivially_copyable_v<ConvertParams>);

inline constexpr int kConvertVec = 8;  // elements; 16 bytes on the narrow side

// Rows converted.
//
//   out[row][col] = x[row][col]
//
// Work      A thread owns one vector of a row.
// Pipeline  One load, one store; many blocks on an SM overlap.
// Output    Rounded once, to nearest even; widening is exact.
// Cost      Each element read once and written once: 6 bytes from f32 to bf16. Bandwidth is the
//           limit.
// Needs     kVec > 1: addresses and strides of rows on 16 bytes. kVec == 1: nothing.
template <class Arch, class In, class Out, int kVec>
__global__ void __launch_bounds__(kItemThreads)
    convert_kernel(const __grid_constant__ ConvertParams p) {
  tile::wait_for_previous(Arch{});
  tile::release_next(Arch{});
  const uint32_t item = item_index<1>(0);
  if (item >= p.num_vecs) return;
  const auto [row, vec] = divide_with_remainder(item, p.vecs_per_row);
  const int64_t col = int64_t{vec} * kVec;
  const int64_t left = p.num_cols - col;
  const In* x = static_cast<const In*>(p.x) + row * p.x_stride + col;
  Out* out = static_cast<Out*>(p.out) + row * p.out_stride + col;
  float values[kVec];
  if (left >= kVec) {
    tile::Vec<In, kVec>::load(x).to_floats(values);
    tile::Vec<Out, kVec>::from_floats(values).store(out);
  } else {
    tile::Vec<In, kVec>::load_part(x, static_cast<int>(left)).to_floats(values);
    tile::Vec<Out, kVec>::from_floats(values).store_part(out, static_cast<int>(left));
  }
}

template <class Arch, class In, class Out>
void launch_convert(const CopyArgs& args, const Context& ctx) {
  Rows x = as_rows(args.x, "copy: x"), out = as_rows(args.out, "copy: out");
  if (args.x.is_contiguous() && args.out.is_contiguous()) {  // one long row
    x = {.num_rows = 1, .num_cols = args.x.num_elements(), .row_stride = 0};
    out = x;
  }
  if (x.num_rows == 0 || x.num_cols == 0) return;
  const bool is_aligned = starts_on_vectors<In>(args.x.data, x.row_stride) &&
                          starts_on_vectors<Out>(args.out.data, out.row_stride);
  with_constant<true, false>(is_aligned, [&](auto aligned) {
    constexpr int kVec = aligned() ? kConvertVec : 1;
    // Pieces of so many columns, then of so many rows, that their vectors can be numbered.
    const int64_t piece_cols = std::min(x.num_cols, kMaxItems / 2 * kVec);
    const int64_t vecs_per_row = (piece_cols + kVec - 1) / kVec;
    const int64_t piece_rows = std::max<int64_t>(1, kMaxItems / vecs_per_row);
    for (int64_t row = 0; row < x.num_rows; row += piece_rows) {
      for (int64_t col = 0; col < x.num_cols; col += piece_cols) {
        const int64_t num_rows = std::min(piece_rows, x.num_rows - row);
        const int64_t num_cols = std::min(piece_cols, x.num_cols - col);
        const int64_t vecs = (num_cols + kVec - 1) / kVec;
        const ConvertParams p{.x = args.x.template as<const In>() + row * x.row_stride + col,
                              .out = args.out.template as<Out>() + row * out.row_stride + col,
                              .x_stride = x.row_stride,
                              .out_stride = out.row_stride,
                              .num_cols = num_cols,
                              .num_vecs = static_cast<uint32_t>(num_rows * vecs),
                              .vecs_per_row = make_divisor(vecs)};
        launch(&convert_kernel<Arch, In, Out, kVec>, item_shape<Arch>(num_rows * vecs, 1), p, ctx);
      }
    }
  });
}

}  // namespace tessera::kernels
