// A matrix and its scales, cut into tiles of vectors: which block, thread and scale serve an
// element.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/elementwise/quantize_params.h"
#include "kernels/elementwise/row_vec.cuh"
#include "kernels/launch.h"
#include "tessera/ops/quantize.h"

namespace tessera::kernels {

// The scales of one vector of N elements.
template <ScaleAccess kAccess, int N>
struct VecScales {
  static constexpr int kCount = kAccess == ScaleAccess::whole_vector ? 1 : N;
  float scales[kCount];
  int zero_points[kCount];

  __device__ float scale(int i) const { return scales[kCount == 1 ? 0 : i]; }
  __device__ int zero_point(int i) const { return zero_points[kCount == 1 ? 0 : i]; }

  // The scales of vector v of a row; zeros beyond the row.
  __device__ static VecScales load(const ScaleTable& table, int64_t row_idx, int v, int cols) {
    VecScales result;
    const int begin = v * N;
    const bool has_zero_points = table.zero_point != nullptr;
    if constexpr (kAccess == ScaleAccess::column) {
      const auto scales = load_vec_if<float, N>(table.scale + begin, begin < cols);
      const auto zero_points =
          load_vec_if<int32_t, N>(table.zero_point + begin, has_zero_points && begin < cols);
      TESSERA_UNROLL
      for (int i = 0; i < N; ++i) {
        result.scales[i] = scales.values[i];
        result.zero_points[i] = zero_points.values[i];
      }
    } else {
      TESSERA_UNROLL
      for (int i = 0; i < kCount; ++i) {
        const bool is_inside = begin + i < cols;
        const int64_t idx = row_idx * table.row_step + (begin + i) / table.cols_per_scale;
        result.scales[i] = load_vec_if<float, 1>(table.scale + idx, is_inside).values[0];
        result.zero_points[i] =
            load_vec_if<int32_t, 1>(table.zero_point + idx, has_zero_points && is_inside).values[0];
      }
    }
    return result;
  }
};

// The vector and the first row of a thread in a MatrixTile; its other rows are rows_down apart.
struct MatrixPlace {
  int v;
  int64_t row_idx;
  int rows_down;
};

__device__ inline MatrixPlace place_in_matrix(const MatrixTile& tile) {
  const int thread = static_cast<int>(threadIdx.x);
  const int num_lanes = 1 << tile.log2_lanes;
  const int64_t row_block = blockIdx.x / static_cast<unsigned>(tile.num_chunks);
  const int chunk = static_cast<int>(blockIdx.x % static_cast<unsigned>(tile.num_chunks));
  return {chunk * num_lanes + (thread & (num_lanes - 1)),
          row_block * tile.rows_down() * kMatrixRows + (thread >> tile.log2_lanes),
          tile.rows_down()};
}

// Which scales an access finds. `vec_size` is that of the wider side, `is_vectorized` of both.
inline ScaleAccess choose_scale_access(const ScaleTable& table, int cols, int vec_size,
                                       bool is_vectorized) {
  const auto starts_vector = [](const void* data) {
    return reinterpret_cast<uintptr_t>(data) % tile::kMaxAccessBytes == 0;
  };
  if (!is_vectorized) return ScaleAccess::element;
  if (table.cols_per_scale == cols || table.cols_per_scale % vec_size == 0) {
    return ScaleAccess::whole_vector;
  }
  const bool is_column = table.cols_per_scale == 1 && table.row_step == 0;
  return is_column && starts_vector(table.scale) && starts_vector(table.zero_point)
             ? ScaleAccess::column
             : ScaleAccess::element;
}

template <class Args>
ScaleTable scale_table(const Args& args, const ScaleLayout& layout) {
  return {.scale = args.scale.template as<float>(),
          .zero_point = args.zero_point ? args.zero_point->template as<int32_t>() : nullptr,
          .row_step = layout.rows_per_scale == 1 ? layout.scales_per_row : 0,
          .cols_per_scale = static_cast<int>(layout.cols_per_scale)};
}

inline LaunchShape matrix_shape(const MatrixTile& tile, int64_t num_rows, bool overlaps) {
  const int64_t num_blocks = tile.count_row_blocks(num_rows) * tile.num_chunks;
  return {.grid = dim3(static_cast<unsigned>(num_blocks)),
          .block = dim3(kMatrixThreads),
          .overlaps_previous = overlaps};
}

}  // namespace tessera::kernels
