// Quantisation with known scales, and the launcher that finds them first where they are dynamic.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/elementwise/launch.h"
#include "kernels/elementwise/quantize_code.cuh"
#include "kernels/elementwise/quantize_matrix.cuh"
#include "kernels/elementwise/quantize_run.cuh"
#include "kernels/elementwise/quantize_scale.cuh"
#include "kernels/launch.h"
#include "kernels/with_constant.h"
#include "tile/arch.cuh"

namespace tessera::kernels {

// Quantisation with scales that are there already.
//
//   out = round(x * (1 / scale)) (+ zero_point), saturated
//
// Work      A matrix tile a block: threads along a row, each on kMatrixRows rows, so that a
//           column's scales are read and inverted once for all of them.
// Pipeline  All loads of x and of the scales are issued before the first use.
// Output    Codes, by stores of 8 bytes a thread for bf16 to 8 bits, 4 to 4 bits.
// Cost      Reads x once and writes codes: 3 bytes an element for bf16 to 8 bits, 2.5 to 4 bits,
//           and 2 flop. Bandwidth is the limit. docs/kernels/elementwise.md
// Needs     p.is_vectorized unless kAccess is element; for column, scales aligned to 16 bytes.
template <class Arch, class In, class Code, bool kHasZero, ScaleAccess kAccess>
__global__ void __launch_bounds__(kMatrixThreads)
    quantize_kernel(const __grid_constant__ QuantizeParams p) {
  constexpr int kSize = tile::kVecSize<In>;
  constexpr bool kIsVectorized = kAccess != ScaleAccess::element;
  constexpr bool kSharesScales = kAccess == ScaleAccess::column;  // among a thread's rows
  constexpr int kRows = kIsVectorized ? kMatrixRows : 1;          // at a time
  using Scales = VecScales<kAccess, kSize>;
  const MatrixPlace place = place_in_matrix(p.tile);
  tile::wait_for_previous(Arch{});

  for (int first = 0; first < kMatrixRows; first += kRows) {
    const auto row_of = [&](int j) { return place.row_idx + (first + j) * place.rows_down; };
    const auto cols_of = [&](int j) { return row_of(j) < p.num_rows ? p.cols : 0; };
    tile::Vec<In, kSize> x[kRows];
    Scales scales[kSharesScales ? 1 : kRows];
    TESSERA_UNROLL
    for (int j = 0; j < kRows; ++j) {
      const In* row = static_cast<const In*>(p.x) + row_of(j) * p.x_stride;
      x[j] = load_row_vec<kSize, kIsVectorized>(row, place.v, cols_of(j));
      if (!kSharesScales || j == 0) {
        scales[j] = Scales::load(p.scales, row_of(j), place.v, cols_of(j));
      }
    }
    if (first + kRows == kMatrixRows) tile::release_next(Arch{});
    TESSERA_UNROLL
    for (Scales& vec : scales) {
      TESSERA_UNROLL
      for (float& scale : vec.scales) scale = __fdiv_rn(1.0f, scale);
    }
    TESSERA_UNROLL
    for (int j = 0; j < kRows; ++j) {
      const Scales& inverse = scales[kSharesScales ? 0 : j];
      const auto codes = Coder<Code, kHasZero>::encode(
          x[j], [&](int i) { return inverse.scale(i); },
          [&](int i) { return inverse.zero_point(i); });
      Code* row = code_at<Code>(p.out, row_of(j) * p.out_stride);
      store_codes<Code, kSize, kIsVectorized>(codes, row, place.v, cols_of(j));
    }
  }
}

template <class Arch, class In, class Code, bool kHasZero>
void launch_quantize_with(const QuantizeParams& p, ScaleMode mode, const Context& ctx) {
  const bool is_empty = p.num_rows == 0 || p.cols == 0;
  if (mode == ScaleMode::dynamic) {
    // A run takes at most a block: one scale for a long row is better found by the whole grid. A
    // scale for each column of one row looks like runs of one element, which i4 cannot store alone.
    const bool is_per_column = p.scales.cols_per_scale == 1 && p.num_scales == p.cols;
    const bool is_long = p.num_scales == 1 && p.cols > kRunMaxThreads * tile::kVecSize<In>;
    if (p.scales.row_step > 0 && !is_empty && !is_per_column && !is_long) {
      return launch_quantize_runs<Arch, In, Code, kHasZero>(p, ctx);
    }
    launch_find_scales<Arch, In, Code, kHasZero>(p, is_per_column, ctx);
  }
  if (is_empty) return;
  const ScaleAccess access =
      choose_scale_access(p.scales, p.cols, tile::kVecSize<In>, p.is_vectorized);
  const LaunchShape shape = matrix_shape(p.tile, p.num_rows, kOverlaps<Arch>);
  with_constant<ScaleAccess::whole_vector, ScaleAccess::column, ScaleAccess::element>(
      access, [&](auto access) {
        launch(&quantize_kernel<Arch, In, Code, kHasZero, access()>, shape, p, ctx);
      });
}

template <class Arch, class In, class Code>
void launch_quantize(const QuantizeArgs& args, const Context& ctx) {
  constexpr int kSize = tile::kVecSize<In>;
  const Rows x = as_rows(args.x, "quantize: x");
  const Rows out = as_rows(args.out, "quantize: out");
  const int cols = count_cols(x, "quantize: x");
  const ScaleLayout layout = scale_layout(args.x, args.scale);
  const bool is_vectorized = can_vectorize<kSize>(args.x, x) && can_vectorize<kSize>(args.out, out);
  const QuantizeParams p{.x = args.x.data,
                         .out = args.out.data,
                         .scales = scale_table(args, layout),
                         .x_stride = x.row_stride,
                         .out_stride = out.row_stride,
                         .num_rows = x.num_rows,
                         .num_scales = args.scale.num_elements(),
                         .cols = cols,
                         .is_vectorized = is_vectorized,
                         .tile = choose_matrix_tile(count_vecs(cols, kSize))};
  if (p.num_scales == 0) return;
  if constexpr (dtype_of<Code> == DType::i4) {
    with_constant<true, false>(args.zero_point.has_value(), [&](auto has_zero) {
      launch_quantize_with<Arch, In, Code, has_zero()>(p, args.mode, ctx);
    });
  } else {
    constexpr bool kHasZero = zero_point_max(dtype_of<Code>) > 0;
    launch_quantize_with<Arch, In, Code, kHasZero>(p, args.mode, ctx);
  }
}

}  // namespace tessera::kernels
