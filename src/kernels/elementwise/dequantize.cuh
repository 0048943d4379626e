// Dequantisation: codes of 4 and 8 bits to f32, f16 and bf16.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/elementwise/launch.h"
#include "kernels/elementwise/quantize_code.cuh"
#include "kernels/launch.h"
#include "kernels/with_constant.h"
#include "tile/arch.cuh"

namespace tessera::kernels {

// (q - zero_point) * scale of each code in a vector. Integer codes are shifted as integers, so the
// product is the only rounding. Nibbles are two's complement without a zero point (`sign` is 8) and
// unsigned with one (`sign` is 0), or indices of `table` if that is not null.
template <class Code, int N, class Scales>
__device__ void decode(const CodeVec<Code, N>& codes, const Scales& scales, int sign,
                       const float* table, float (&values)[N]) {
  TESSERA_UNROLL
  for (int i = 0; i < N; ++i) {
    const Code code = codes.values[i / kPacked<Code>];
    float shifted;
    if constexpr (dtype_of<Code> == DType::i4) {
      const int nibble = (code.bits >> (i % 2 * 4)) & 0xf;
      shifted = table != nullptr
                    ? __ldg(table + nibble)
                    : static_cast<float>((nibble ^ sign) - sign - scales.zero_point(i));
    } else if constexpr (std::is_integral_v<Code>) {
      shifted = static_cast<float>(static_cast<int>(code) - scales.zero_point(i));
    } else {
      shifted = tile::to_float(code) - static_cast<float>(scales.zero_point(i));
    }
    values[i] = __fmul_rn(shifted, scales.scale(i));
  }
}

// Dequantisation.
//
//   out = (q - zero_point) * scale, or table[q] * scale
//
// Work      A matrix tile per block: threads along a row, each on kMatrixRows rows, so that a
//           column's scales are read once for all of them.
// Pipeline  All loads of codes and of scales are issued before the first use.
// Output    Stores of 16 bytes per thread; the float product is rounded once to the type.
// Cost      Reads codes and writes values: 3 bytes per element for 8 bits to bf16, 2.5 for 4 bits,
//           and 2 flop. Bandwidth is the limit; a table is 64 bytes of L1, read once a code.
//           docs/kernels/elementwise.md
// Needs     p.is_vectorized unless kAccess is element; for column, scales aligned to 16 bytes.
template <class Arch, class Code, class Out, ScaleAccess kAccess>
__global__ void __launch_bounds__(kMatrixThreads)
    dequantize_kernel(const __grid_constant__ DequantizeParams p) {
  constexpr int kSize = tile::kVecSize<Out>;
  constexpr bool kIsVectorized = kAccess != ScaleAccess::element;
  constexpr bool kSharesScales = kAccess == ScaleAccess::column;  // among a thread's rows
  constexpr int kRows = kIsVectorized ? kMatrixRows : 1;          // at a time
  using Scales = VecScales<kAccess, kSize>;
  const MatrixPlace place = place_in_matrix(p.tile);
  const int sign = p.scales.zero_point == nullptr ? 8 : 0;
  tile::wait_for_previous(Arch{});

  for (int first = 0; first < kMatrixRows; first += kRows) {
    const auto row_of = [&](int j) { return place.row_idx + (first + j) * place.rows_down; };
    const auto cols_of = [&](int j) { return row_of(j) < p.num_rows ? p.cols : 0; };
    CodeVec<Code, kSize> codes[kRows];
    Scales scales[kSharesScales ? 1 : kRows];
    TESSERA_UNROLL
    for (int j = 0; j < kRows; ++j) {
      const Code* row = code_at<Code>(p.x, row_of(j) * p.x_stride);
      codes[j] = load_codes<Code, kSize, kIsVectorized>(row, place.v, cols_of(j));
      if (!kSharesScales || j == 0) {
        scales[j] = Scales::load(p.scales, row_of(j), place.v, cols_of(j));
      }
    }
    if (first + kRows == kMatrixRows) tile::release_next(Arch{});
    TESSERA_UNROLL
    for (int j = 0; j < kRows; ++j) {
      float values[kSize];
      decode<Code, kSize>(codes[j], scales[kSharesScales ? 0 : j], sign, p.table, values);
      Out* row = static_cast<Out*>(p.out) + row_of(j) * p.out_stride;
      store_row_vec<kIsVectorized>(tile::Vec<Out, kSize>::from_floats(values), row, place.v,
                                   cols_of(j));
    }
  }
}

template <class Arch, class Code, class Out>
void launch_dequantize(const DequantizeArgs& args, const Context& ctx) {
  constexpr int kSize = tile::kVecSize<Out>;
  const Rows x = as_rows(args.x, "dequantize: x");
  const Rows out = as_rows(args.out, "dequantize: out");
  if (x.num_rows == 0 || x.num_cols == 0) return;
  const int cols = count_cols(x, "dequantize: x");
  const ScaleTable scales = scale_table(args, scale_layout(args.x, args.scale));
  const bool is_vectorized = can_vectorize<kSize>(args.x, x) && can_vectorize<kSize>(args.out, out);
  const DequantizeParams p{.x = args.x.data,
                           .out = args.out.data,
                           .scales = scales,
                           .table = args.table ? args.table->as<float>() : nullptr,
                           .x_stride = x.row_stride,
                           .out_stride = out.row_stride,
                           .num_rows = x.num_rows,
                           .cols = cols,
                           .is_vectorized = is_vectorized,
                           .tile = choose_matrix_tile(count_vecs(cols, kSize))};
  const LaunchShape shape = matrix_shape(p.tile, p.num_rows, kOverlaps<Arch>);
  with_constant<ScaleAccess::whole_vector, ScaleAccess::column, ScaleAccess::element>(
      choose_scale_access(scales, cols, kSize, is_vectorized),
      [&](auto access) { launch(&dequantize_kernel<Arch, Code, Out, access()>, shape, p, ctx); });
}

}  // namespace tessera::kernels
