// Dynamic scales that whole columns or the whole tensor share: a pass over x ahead of quantisation.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/elementwise/quantize_code.cuh"
#include "kernels/elementwise/quantize_matrix.cuh"
#include "kernels/launch.h"
#include "kernels/with_constant.h"
#include "tile/arch.cuh"

namespace tessera::kernels {

// Until finish_scales_kernel runs, the outputs themselves hold the range: `scale` the top and
// `zero_point` the bits of the depth. Both are floats that are never negative, which order as
// integers do, and NaN is 0x7fffffff, the greatest of all; so an integer maximum gathers them, and
// the order of arrival does not matter.
template <bool kHasZero>
__device__ void gather_range(const ScaleTable& table, int64_t idx,
                             const ValueRange<kHasZero>& range) {
  if (!(range.top <= 0.0f)) {  // NaN counts
    atomicMax(reinterpret_cast<int*>(table.scale + idx), __float_as_int(range.top));
  }
  if constexpr (kHasZero) {
    if (!(range.depth <= 0.0f)) atomicMax(table.zero_point + idx, __float_as_int(range.depth));
  }
}

inline constexpr int kScaleThreads = 128;

__device__ inline int64_t scale_of_thread() {
  return static_cast<int64_t>(blockIdx.x) * kScaleThreads + threadIdx.x;
}

// Empties the ranges.
template <class Arch>
__global__ void __launch_bounds__(kScaleThreads)
    start_scales_kernel(const __grid_constant__ QuantizeParams p) {
  tile::wait_for_previous(Arch{});
  tile::release_next(Arch{});
  const int64_t idx = scale_of_thread();
  if (idx >= p.num_scales) return;
  p.scales.scale[idx] = 0.0f;
  if (p.scales.zero_point != nullptr) p.scales.zero_point[idx] = 0;
}

// Turns ranges into scales and zero points.
template <class Arch, class Code, bool kHasZero>
__global__ void __launch_bounds__(kScaleThreads)
    finish_scales_kernel(const __grid_constant__ QuantizeParams p) {
  tile::wait_for_previous(Arch{});
  tile::release_next(Arch{});
  const int64_t idx = scale_of_thread();
  if (idx >= p.num_scales) return;
  ValueRange<kHasZero> range;
  range.top = p.scales.scale[idx];
  if constexpr (kHasZero) range.depth = __int_as_float(p.scales.zero_point[idx]);
  const Scale scale = Coder<Code, kHasZero>::find_scale(range);
  p.scales.scale[idx] = scale.scale;
  if constexpr (kHasZero) p.scales.zero_point[idx] = scale.zero_point;
}

// The ranges of columns, or of the whole matrix.
//
//   range[c] = (max, -min) over rows of x[row, c]     or absmax; kPerColumn false: over c as well
//
// Work      A matrix tile a block, stepping down the rows by the grid; a thread stays on the
// columns
//           of one vector.
// Pipeline  kMatrixRows loads are issued before the first is used.
// Output    One integer maximum a thread and column (a block, for the whole matrix) on the scale's
//           own memory. The result does not depend on their order.
// Cost      Reads x once: 2 bytes and 2 flop an element in bf16. Bandwidth is the limit.
//           docs/kernels/elementwise.md
// Needs     ranges emptied by start_scales_kernel; whole aligned vectors if kIsVectorized.
template <class Arch, class In, bool kHasZero, bool kPerColumn, bool kIsVectorized>
__global__ void __launch_bounds__(kMatrixThreads)
    find_ranges_kernel(const __grid_constant__ QuantizeParams p) {
  constexpr int kSize = tile::kVecSize<In>;
  __shared__ RangeParts parts;
  const MatrixPlace place = place_in_matrix(p.tile);
  const int64_t num_row_blocks = gridDim.x / static_cast<unsigned>(p.tile.num_chunks);
  const int64_t row_step = num_row_blocks * place.rows_down * kMatrixRows;
  tile::wait_for_previous(Arch{});
  tile::release_next(Arch{});

  ValueRange<kHasZero> ranges[kPerColumn ? kSize : 1];
  for (int64_t first = place.row_idx; first < p.num_rows; first += row_step) {
    tile::Vec<In, kSize> x[kMatrixRows];
    TESSERA_UNROLL
    for (int j = 0; j < kMatrixRows; ++j) {
      const int64_t row_idx = first + j * place.rows_down;
      const In* row = static_cast<const In*>(p.x) + row_idx * p.x_stride;
      x[j] = load_row_vec<kSize, kIsVectorized>(row, place.v, row_idx < p.num_rows ? p.cols : 0);
    }
    TESSERA_UNROLL
    for (int j = 0; j < kMatrixRows; ++j) {
      TESSERA_UNROLL
      for (int i = 0; i < kSize; ++i) {
        ranges[kPerColumn ? i : 0].include(tile::to_float(x[j].values[i]));
      }
    }
  }
  if constexpr (kPerColumn) {
    TESSERA_UNROLL
    for (int i = 0; i < kSize; ++i) {
      const int64_t col = static_cast<int64_t>(place.v) * kSize + i;
      if (col < p.cols) gather_range(p.scales, col, ranges[i]);
    }
  } else {
    const ValueRange<kHasZero> range = fold_run(ranges[0], parts);
    if (threadIdx.x == 0) gather_range(p.scales, 0, range);
  }
}

// Blocks that find ranges: enough to fill a large GPU twice, few enough that gathering is cheap.
inline constexpr int64_t kRangeBlocks = 512;

// Leaves scales (and zero points) for columns, or one for the tensor. An empty x leaves 1 (and 0).
template <class Arch, class In, class Code, bool kHasZero>
void launch_find_scales(const QuantizeParams& p, bool is_per_column, const Context& ctx) {
  const int64_t scale_blocks = (p.num_scales + kScaleThreads - 1) / kScaleThreads;
  const LaunchShape scale_shape{.grid = dim3(static_cast<unsigned>(scale_blocks)),
                                .block = dim3(kScaleThreads),
                                .overlaps_previous = kOverlaps<Arch>};
  launch(&start_scales_kernel<Arch>, scale_shape, p, ctx);
  if (p.num_rows > 0 && p.cols > 0) {
    const int64_t wanted = kRangeBlocks / p.tile.num_chunks + 1;
    const int64_t row_blocks = p.tile.count_row_blocks(p.num_rows);
    const int64_t num_blocks = (wanted < row_blocks ? wanted : row_blocks) * p.tile.num_chunks;
    const LaunchShape shape{.grid = dim3(static_cast<unsigned>(num_blocks)),
                            .block = dim3(kMatrixThreads),
                            .overlaps_previous = kOverlaps<Arch>};
    with_constant<true, false>(is_per_column, [&](auto per_column) {
      with_constant<true, false>(p.is_vectorized, [&](auto vectorized) {
        launch(&find_ranges_kernel<Arch, In, kHasZero, per_column(), vectorized()>, shape, p, ctx);
      });
    });
  }
  launch(&finish_scales_kernel<Arch, Code, kHasZero>, scale_shape, p, ctx);
}

}  // namespace tessera::kernels
