// Quantisation with scales found on the way: per token and per group, x read once.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/elementwise/quantize_code.cuh"
#include "kernels/launch.h"
#include "kernels/with_constant.h"
#include "tile/arch.cuh"

namespace tessera::kernels {

// The run of elements a thread works on: a token's row, or a group within it.
template <class In, class Code, bool kIsVectorized>
struct QuantizeRun {
  static constexpr int kSize = tile::kVecSize<In>;
  const In* x;
  Code* out;
  int64_t idx;  // of its scale
  int cols;     // 0 beyond the last run: nothing is loaded and nothing stored

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

// Dynamic quantisation of runs that fit in a block's registers.
//
//   scale = absmax(run) / qmax  (or (max - min) / levels);  out = round(x / scale) (+ zero_point)
//
// Work      blockDim is (threads of a run, runs): a group of 128 in bf16 takes 8 lanes, a token of
//           4096 takes 256 threads. A thread owns kRunVecs vectors of 16 bytes, strided by the run.
// Pipeline  All loads of a run are issued before the first use, and x stays in registers as it
//           was loaded until it is encoded.
// Output    Codes, and one scale (and zero point) a run. Extremes do not depend on the order.
// Cost      Reads x once and writes codes: 3 bytes an element for bf16 to 8 bits, 2.5 to 4 bits,
//           and about 4 flop. Bandwidth is the limit. docs/kernels/elementwise.md
// Needs     runs up to 2048 vectors; whole aligned vectors if kIsVectorized.
template <class Arch, class In, class Code, bool kHasZero, bool kIsVectorized>
__global__ void __launch_bounds__(kRunMaxThreads, 1)
    quantize_run_kernel(const __grid_constant__ QuantizeParams p) {
  using Run = QuantizeRun<In, Code, kIsVectorized>;
  using Coding = Coder<Code, kHasZero>;
  __shared__ RangeParts parts;
  const Run run(p);
  tile::wait_for_previous(Arch{});

  tile::Vec<In, Run::kSize> x[kRunVecs];
  TESSERA_UNROLL
  for (int i = 0; i < kRunVecs; ++i) x[i] = run.load(vec_of_thread(i));
  tile::release_next(Arch{});
  ValueRange<kHasZero> range;
  TESSERA_UNROLL
  for (int i = 0; i < kRunVecs; ++i) range.include(x[i]);  // zeros beyond the run change nothing
  const Scale scale = Coding::find_scale(fold_run(range, parts));
  run.store_scale(p.scales, scale);
  TESSERA_UNROLL
  for (int i = 0; i < kRunVecs; ++i) run.store(Coding::encode(x[i], scale), vec_of_thread(i));
}

// The same for runs of any length, one block each, walked twice: once for the range and once to
// encode. The second reading comes mostly from L2.
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

}  // namespace tessera::kernels
