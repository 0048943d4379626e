// Quantisation: with known scales, with scales found on the way (per token and per group), and with
// scales found by a pass before it (per tensor and per column).
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/elementwise/launch.h"
#include "kernels/elementwise/quantize_code.cuh"
#include "kernels/launch.h"
#include "kernels/with_constant.h"
#include "tile/arch.cuh"

namespace tessera::kernels {

// One thread's part of a run of elements that share a scale: the row of a token, or a group of it.
template <class In, class Code, bool kIsVectorized>
struct QuantizeRun {
  static constexpr int kSize = tile::kVecSize<In>;
  const In* x;
  Code* out;
  int64_t idx;  // the index of its scale
  int cols;     // 0 beyond the last run: nothing is loaded or stored

  __device__ explicit QuantizeRun(const QuantizeParams& p) : idx(row_of_thread()) {
    const int64_t runs_per_row = p.scales.row_step;
    const int64_t row_idx = runs_per_row == 1 ? idx : idx / runs_per_row;
    const int64_t col = (idx - row_idx * runs_per_row) * p.scales.cols_per_scale;
    x = static_cast<const In*>(p.x) + row_idx * p.x_stride + col;
    out = code_at<Code>(p.out, row_idx * p.out_stride + col);
    cols = idx < p.num_scales ? p.scales.cols_per_scale : 0;
  }

  __device__ tile::Vec<In, kSize> load(int v) const {
    return load_row_vec<kSize, kIsVectorized>(x, v, cols);
  }
  __device__ void store(const CodeVec<Code, kSize>& codes, int v) const {
    store_codes<Code, kSize, kIsVectorized>(codes, out, v, cols);
  }
  __device__ void store_scale(const ScaleTable& table, const Scale& scale) const {
    if (threadIdx.x != 0 || cols == 0) return;
    table.scale[idx] = scale.scale;
    if (table.zero_point != nullptr) table.zero_point[idx] = scale.zero_point;
  }
};

// Up to this many blocks, as for the tokens of a decode step, leave room for the product behind
// them, which then loads its weights while they run.
inline constexpr unsigned kRunFewBlocks = 128;

// Dynamic quantisation of runs that fit in a block's registers.
//
//   scale = absmax(run) / qmax  (or (max - min) / levels);  out = round(x / scale) (+ zero_point)
//
// Work      blockDim is (threads of a run, runs): a group of 128 in bf16 takes 8 lanes, a token of
//           4096 takes 256 threads. A thread owns kRunVecs vectors of 16 bytes, strided by the run.
// Pipeline  All loads of a run are issued before the first use, and x stays in registers as it
//           was loaded until it is encoded.
// Output    Codes, and one scale (and zero point) per run. Extremes do not depend on the order.
// Cost      Reads x once and writes codes: 3 bytes per element for bf16 to 8 bits, 2.5 to 4 bits,
//           and about 4 flop. Bandwidth is the limit. docs/kernels/elementwise.md
// Needs     runs up to 2048 vectors; whole aligned vectors if kIsVectorized.
template <class Arch, class In, class Code, bool kHasZero, bool kIsVectorized>
__global__ void __launch_bounds__(kRunMaxThreads, 1)
    quantize_run_kernel(const __grid_constant__ QuantizeParams p) {
  using Run = QuantizeRun<In, Code, kIsVectorized>;
  using Coding = Coder<Code, kHasZero>;
  __shared__ RangeParts parts;
  const Run run(p);
  const bool releases_first = gridDim.x <= kRunFewBlocks;
  if (releases_first) tile::release_next(Arch{});
  tile::wait_for_previous(Arch{});

  tile::Vec<In, Run::kSize> x[kRunVecs];
  TESSERA_UNROLL
  for (int i = 0; i < kRunVecs; ++i) x[i] = run.load(vec_of_thread(i));
  if (!releases_first) tile::release_next(Arch{});
  ValueRange<kHasZero> range;
  TESSERA_UNROLL
  for (int i = 0; i < kRunVecs; ++i) range.include(x[i]);  // zeros beyond the run change nothing
  const Scale scale = Coding::find_scale(fold_run(range, parts));
  run.store_scale(p.scales, scale);
  TESSERA_UNROLL
  for (int i = 0; i < kRunVecs; ++i) run.store(Coding::encode(x[i], scale), vec_of_thread(i));
}

// The same for runs of any length, one block each, walked twice: once for the range and once to
// encode. The second pass reads mostly from L2.
template <class Arch, class In, class Code, bool kHasZero, bool kIsVectorized>
__global__ void __launch_bounds__(kRunMaxThreads, 1)
    quantize_long_run_kernel(const __grid_constant__ QuantizeParams p) {
  using Run = QuantizeRun<In, Code, kIsVectorized>;
  using Coding = Coder<Code, kHasZero>;
  __shared__ RangeParts parts;
  const Run run(p);
  tile::wait_for_previous(Arch{});
  tile::release_next(Arch{});

  const int num_vecs = count_vecs(run.cols, Run::kSize);
  const auto for_each_vec = [&](auto&& body) {
    for (int i = 0; vec_of_thread(i) < num_vecs; i += kRunLongVecs) {
      tile::Vec<In, Run::kSize> x[kRunLongVecs];
      TESSERA_UNROLL
      for (int j = 0; j < kRunLongVecs; ++j) x[j] = run.load(vec_of_thread(i + j));
      TESSERA_UNROLL
      for (int j = 0; j < kRunLongVecs; ++j) body(x[j], vec_of_thread(i + j));
    }
  };
  ValueRange<kHasZero> range;
  for_each_vec([&](const auto& x, int) { range.include(x); });
  const Scale scale = Coding::find_scale(fold_run(range, parts));
  run.store_scale(p.scales, scale);
  for_each_vec([&](const auto& x, int v) { run.store(Coding::encode(x, scale), v); });
}

template <class Arch, class In, class Code, bool kHasZero>
void launch_quantize_runs(const QuantizeParams& p, const Context& ctx) {
  const RunBlock run = choose_run_block(count_vecs(p.scales.cols_per_scale, tile::kVecSize<In>));
  const int64_t num_blocks = (p.num_scales + run.num_runs - 1) / run.num_runs;
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(num_blocks)),
      .block = dim3(static_cast<unsigned>(run.num_threads), static_cast<unsigned>(run.num_runs)),
      .overlaps_previous = kOverlaps<Arch>};
  const bool is_vectorized = p.is_vectorized && p.scales.cols_per_scale % tile::kVecSize<In> == 0;
  with_constant<true, false>(is_vectorized, [&](auto vectorized) {
    if (run.is_long) {
      launch(&quantize_long_run_kernel<Arch, In, Code, kHasZero, vectorized()>, shape, p, ctx);
    } else {
      launch(&quantize_run_kernel<Arch, In, Code, kHasZero, vectorized()>, shape, p, ctx);
    }
  });
}

// Until finish_scales_kernel runs, the outputs hold the range: `scale` the top and `zero_point` the
// bits of the depth. Both are non-negative floats, whose bits are ordered like integers, and NaN is
// 0x7fffffff, the largest. So an integer maximum combines them in any order.
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

// Sets all ranges to empty.
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
// Work      A matrix tile per block, stepping down the rows by the grid; a thread stays on the
//           columns of one vector.
// Pipeline  kMatrixRows loads are issued before the first is used.
// Output    One atomic integer maximum per thread and column (per block, for the whole matrix), in
//           the memory of the scale. The result does not depend on their order.
// Cost      Reads x once: 2 bytes and 2 flop per element in bf16. Bandwidth is the limit.
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

// Finds scales (and zero points) of all columns, or one for the tensor. An empty x gives 1 (and 0).
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

// Quantisation with known scales.
//
//   out = round(x * (1 / scale)) (+ zero_point), saturated
//
// Work      A matrix tile per block: threads along a row, each on kMatrixRows rows, so that a
//           column's scales are read and inverted once for all of them.
// Pipeline  All loads of x and of the scales are issued before the first use.
// Output    Codes, by stores of 8 bytes per thread for bf16 to 8 bits, 4 to 4 bits.
// Cost      Reads x once and writes codes: 3 bytes per element for bf16 to 8 bits, 2.5 to 4 bits,
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
    // A run that fits into one block's registers takes one launch; a single scale for a longer row
    // is found faster by the whole grid. A scale per column of one row looks like runs of one
    // element, which i4 cannot store.
    const bool is_per_column = p.scales.cols_per_scale == 1 && p.num_scales == p.cols;
    const bool is_long =
        p.num_scales == 1 && p.cols > kRunVecs * kRunMaxThreads * tile::kVecSize<In>;
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
