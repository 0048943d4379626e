// Row reductions: sum, mean, max, min and largest magnitude of each row.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/elementwise/launch.h"
#include "kernels/elementwise/reduce_params.h"
#include "kernels/elementwise/row_vec.cuh"
#include "kernels/launch.h"
#include "kernels/with_constant.h"
#include "tile/arch.cuh"

namespace tessera::kernels {

// What a reduction does to an element, between elements, and to the result.
template <Reduction kKind>
struct Reducer {
  using Fold =
      std::conditional_t<kKind == Reduction::min, tile::Min,
                         std::conditional_t<kKind == Reduction::sum || kKind == Reduction::mean,
                                            tile::Sum, tile::Max>>;
  static constexpr float kIdentity = kKind == Reduction::absmax ? 0.0f : Fold::kIdentity;

  __device__ static float map(float x) { return kKind == Reduction::absmax ? fabsf(x) : x; }
  __device__ static float finish(float total, int cols) {
    return kKind == Reduction::mean ? __fdiv_rn(total, static_cast<float>(cols)) : total;
  }
};

// One number for each row.
//
//   out[row] = fold over cols of x[row]
//
// Work      One block a row, or one warp where a row is at most 128 vectors; a thread owns the
//           vectors strided by the block, and keeps one accumulator for each lane of a vector.
// Pipeline  kReduceVecs loads are issued before the first is used. The launch bound asks for one
//           block an SM: for more the compiler would save registers and issue two at a time.
// Output    Lanes, then shuffles, then once across warps: the order depends on cols alone.
// Cost      Reads x once: 2 bytes and 1 flop an element in bf16. Bandwidth is the limit.
//           docs/kernels/elementwise.md
// Needs     cols up to 2^30; whole aligned vectors if kIsVectorized.
template <class Arch, class T, Reduction kKind, bool kIsVectorized>
__global__ void __launch_bounds__(kReduceMaxThreads, 1)
    reduce_kernel(const __grid_constant__ ReduceParams p) {
  using R = Reducer<kKind>;
  constexpr int kSize = tile::kVecSize<T>;
  __shared__ float parts[tile::kMaxWarps];
  const int64_t row_idx = row_of_thread();
  if (row_idx >= p.num_rows) return;  // a whole warp, in blocks that need no barrier
  tile::wait_for_previous(Arch{});

  const T* row = static_cast<const T*>(p.x) + row_idx * p.x_stride;
  const int num_vecs = count_vecs(p.cols, kSize);
  const int step = kReduceVecs * static_cast<int>(blockDim.x);
  float lanes[kSize];
  TESSERA_UNROLL
  for (int i = 0; i < kSize; ++i) lanes[i] = R::kIdentity;
  for (int first = vec_of_thread(0); first < num_vecs; first += step) {
    tile::Vec<T, kSize> x[kReduceVecs];
    TESSERA_UNROLL
    for (int j = 0; j < kReduceVecs; ++j) {
      x[j] =
          load_row_vec<kSize, kIsVectorized>(row, first + j * static_cast<int>(blockDim.x), p.cols);
    }
    TESSERA_UNROLL
    for (int j = 0; j < kReduceVecs; ++j) {
      const int count = p.cols - (first + j * static_cast<int>(blockDim.x)) * kSize;
      TESSERA_UNROLL
      for (int i = 0; i < kSize; ++i) {
        const float value = R::map(tile::to_float(x[j].values[i]));
        lanes[i] =
            R::Fold::apply(lanes[i], is_in_row<kIsVectorized>(i, count) ? value : R::kIdentity);
      }
    }
  }
  tile::release_next(Arch{});
  TESSERA_UNROLL
  for (int width = kSize / 2; width > 0; width /= 2) {
    TESSERA_UNROLL
    for (int i = 0; i < width; ++i) lanes[i] = R::Fold::apply(lanes[i], lanes[i + width]);
  }
  const float total = tile::block_reduce<typename R::Fold>(lanes[0], parts);
  if (threadIdx.x == 0) p.out[row_idx] = R::finish(total, p.cols);
}

template <class Arch, class T>
void launch_reduce(const ReduceArgs& args, const Context& ctx) {
  constexpr int kSize = tile::kVecSize<T>;
  const Rows x = as_rows(args.x, "reduce: x");
  if (x.num_rows == 0) return;
  const int cols = count_cols(x, "reduce: x");
  const ReduceParams p{.x = args.x.data,
                       .out = args.out.as<float>(),
                       .x_stride = x.row_stride,
                       .num_rows = x.num_rows,
                       .cols = cols,
                       .is_vectorized = can_vectorize<kSize>(args.x, x)};
  const RowBlock block = choose_row_block(count_vecs(cols, kSize), kReduceVecs, kReduceMaxThreads);
  const LaunchShape shape{
      .grid = block.grid(x.num_rows), .block = block.block(), .overlaps_previous = kOverlaps<Arch>};
  with_constant<Reduction::sum, Reduction::mean, Reduction::max, Reduction::min, Reduction::absmax>(
      args.kind, [&](auto kind) {
        with_constant<true, false>(p.is_vectorized, [&](auto is_vectorized) {
          launch(&reduce_kernel<Arch, T, kind(), is_vectorized()>, shape, p, ctx);
        });
      });
}

}  // namespace tessera::kernels
