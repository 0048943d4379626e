// What the copy kernels read.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/divisor.h"
#include "kernels/elementwise/copy_plan.h"

namespace tessera::kernels {

// Plain data, copied by value into constant memory. Strides count units.
struct CopyWalk {
  Divisor size;
  int64_t x_stride;
  int64_t out_stride;
};

struct CopyGatherParams {
  const void* x;            // [sizes of axes, reversed], any strides
  void* out;                // the same shape, any strides
  uint32_t num_units;       // at least 1
  int rank;                 // of the walk; 0: one unit
  CopyWalk axes[kMaxRank];  // innermost first
};
static_assert(std::is_trivially_copyable_v<CopyGatherParams>);

// `column` is the axis along which out is contiguous, `row` the one along which x is; the rest are
// batch axes.
struct CopyTransposeParams {
  const void* x;  // [batch, columns, rows]; rows contiguous
  void* out;      // [batch, rows, columns]; columns contiguous
  int64_t x_column_stride;
  int64_t out_row_stride;
  uint32_t num_rows;
  uint32_t num_columns;
  Divisor row_tiles;
  Divisor column_tiles;
  int batch_rank;
  CopyWalk batch[kMaxRank - 2];  // innermost first
};
static_assert(std::is_trivially_copyable_v<CopyTransposeParams>);

}  // namespace tessera::kernels
