// Tensor maps of the operands and of the result of the Hopper matrix product.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/gemm/sm90/plan.h"
#include "tessera/core/tensor.h"
#include "tile/tensor_map.h"

namespace tessera::kernels {

// An operand [batch, rows, k] as slabs of 128 bytes of k, with coordinates (in slab, row, slab,
// batch). k must be a multiple of a slab: an incomplete one would run into the next row.
inline CUtensorMap operand_map(const TensorView& t, int box_rows, int box_slabs) {
  const bool is_batched = t.rank == 3;
  const int slab = kSlabBytes * 8 / bit_width(t.dtype);
  return tile::make_tensor_map(
      {.data = t.data,
       .dtype = t.dtype,
       .rank = 4,
       .dims = {slab, t.size(-2), t.size(-1) / slab, is_batched ? t.size(0) : 1},
       .strides = {1, t.stride(-2), slab, is_batched ? t.stride(0) : t.stride(-2)},
       .box = {slab, box_rows, box_slabs, 1},
       .swizzle = tile::Swizzle::b128});
}

// out [batch, m, columns], stored in boxes of 16 rows.
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

}  // namespace tessera::kernels
