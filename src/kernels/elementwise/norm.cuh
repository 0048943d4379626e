// RMSNorm and LayerNorm kernels: the residual added first, the result quantised last, one pass.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/elementwise/launch.h"
#include "kernels/launch.h"
#include "kernels/norm_row.cuh"
#include "kernels/with_constant.h"
#include "tile/arch.cuh"

namespace tessera::kernels {

inline constexpr unsigned kNormFewRows = 128;

// Prefetches the weights into L2 while the previous kernel still runs: one request per cache line,
// from the first block only. From every block, the requests cost a third of the bandwidth at 16384
// rows.
template <class In>
__device__ void prefetch_weights(const NormParams& p) {
  if (blockIdx.x != 0) return;
  constexpr int kLine = 128 / static_cast<int>(sizeof(In));
  const int begin = static_cast<int>(threadIdx.x) * kLine;
  if (begin >= p.hidden) return;
  tile::prefetch_l2(static_cast<const In*>(p.weight) + begin);
  if (p.bias != nullptr) tile::prefetch_l2(static_cast<const In*>(p.bias) + begin);
}

// The statistics of a row for each kind of norm. `sum(add)` adds up the thread's elements; the sum
// across the block is done here.
struct RootMeanSquare {
  static constexpr bool kTakesBias = false;

  template <class SumOf>
  __device__ static NormStatistics statistics(const SumOf& sum, const NormParams& p,
                                              NormReductions& shared) {
    const float squares = tile::block_reduce<tile::Sum>(sum(AddSquare{}), shared.first);
    return root_mean_square(squares, p);
  }
};

struct MeanVariance {
  static constexpr bool kTakesBias = true;

  // Two folds, the second around the mean: the one-fold form E[h^2] - mean^2 cancels.
  template <class SumOf>
  __device__ static NormStatistics statistics(const SumOf& sum, const NormParams& p,
                                              NormReductions& shared) {
    const float count = static_cast<float>(p.hidden);
    const auto plus = [](float total, float h) { return total + h; };
    const float total = tile::block_reduce<tile::Sum>(sum(plus), shared.first);
    const float mean = __fdiv_rn(total, count);
    const auto add_square = [mean](float total, float h) {
      return fmaf(h - mean, h - mean, total);
    };
    const float squares = tile::block_reduce<tile::Sum>(sum(add_square), shared.second);
    return {mean, __frsqrt_rn(__fdiv_rn(squares, count) + p.eps)};
  }
};

// RMSNorm or LayerNorm of rows that fit in a block's registers.
//
//   h = x + residual;  y = h / rms(h) * weight   or   (h - mean(h)) / std(h) * weight + bias
//
// Work      One block per row; a thread owns kVecs vectors of 16 bytes, strided by the block.
// Pipeline  All loads of a row are issued before the first use, weights included; the blocks of
//           an SM overlap one another's reductions. Before the previous kernel has finished only
//           an L2 prefetch of the weights is issued.
// Output    The mean of squares (for LayerNorm the mean, then the squares around it) is folded by
//           shuffles, then once across warps: the order depends on hidden alone. A quantised
//           output with a dynamic scale adds a reduction for the row's largest magnitude.
// Cost      Reads x and writes out once: 4 bytes per element in bf16, 8 with a residual, and about
//           4 flop. Bandwidth is the limit. docs/kernels/elementwise.md
// Needs     hidden up to 2048 vectors, a whole number of them, every row aligned to 16 bytes.
template <class Arch, class Kind, class In, class Out, int kVecs, bool kHasResidual>
__global__ void __launch_bounds__(kNormMaxThreads, 1)
    norm_kernel(const __grid_constant__ NormParams p) {
  const NormRow<In, Out, true> row{p, blockIdx.x};
  using Vec = typename NormRow<In, Out, true>::Vec;
  __shared__ NormReductions shared;
  // A few rows leave most SMs free, where the next kernel can begin to load its weights. Many rows
  // need the memory for themselves until their loads are under way.
  const bool releases_first = gridDim.x <= kNormFewRows;
  if (releases_first) tile::release_next(Arch{});
  prefetch_weights<In>(p);
  tile::wait_for_previous(Arch{});

  Vec x[kVecs];
  Vec addend[kVecs];
  Vec weight[kVecs];
  Vec bias[kVecs];
  TESSERA_UNROLL
  for (int i = 0; i < kVecs; ++i) {
    const int v = vec_of_thread(i);
    x[i] = row.load_x(v);
    if constexpr (kHasResidual) addend[i] = row.load_residual(v);
  }
  TESSERA_UNROLL
  for (int i = 0; i < kVecs; ++i) {
    const int v = vec_of_thread(i);
    weight[i] = row.load_weight(v);
    if constexpr (Kind::kTakesBias) bias[i] = row.load_bias(v);
  }
  if (!releases_first) tile::release_next(Arch{});

  NormValues<In> h[kVecs];
  TESSERA_UNROLL
  for (int i = 0; i < kVecs; ++i) {
    if constexpr (kHasResidual) x[i] = row.add_residual(vec_of_thread(i), x[i], addend[i]);
    x[i].to_floats(h[i].values);
  }
  const auto sum = [&](auto&& add) {
    float total = 0.0f;
    TESSERA_UNROLL
    for (int i = 0; i < kVecs; ++i) total += row.sum_of(vec_of_thread(i), h[i], add);
    return total;
  };
  const NormStatistics stats = Kind::statistics(sum, p, shared);
  float largest = 0.0f;
  TESSERA_UNROLL
  for (int i = 0; i < kVecs; ++i) {
    row.normalize(weight[i], stats, h[i]);
    if constexpr (Kind::kTakesBias) row.add_bias(bias[i], h[i]);
    if (row.needs_absmax()) largest = tile::Max::apply(largest, row.absmax_of(h[i]));
  }
  const float inverse_scale = row.find_scale(largest, shared);
  TESSERA_UNROLL
  for (int i = 0; i < kVecs; ++i) row.store(vec_of_thread(i), h[i], inverse_scale);
}

// The same for rows of any length (kIsWhole) or any alignment: the block reads the row once for
// each statistic and once more to write, mostly from L2. Such rows are rare, so this kernel is kept
// simple. It sums in the order of norm_kernel.
template <class Arch, class Kind, class In, class Out, bool kIsWhole>
__global__ void __launch_bounds__(kIsWhole ? kNormLongThreads : kNormMaxThreads, 1)
    norm_long_kernel(const __grid_constant__ NormParams p) {
  const NormRow<In, Out, kIsWhole> row{p, blockIdx.x};
  __shared__ NormReductions shared;
  tile::release_next(Arch{});
  tile::wait_for_previous(Arch{});

  const int num_vecs = count_vecs(p.hidden, tile::kVecSize<In>);
  if (p.residual != nullptr) {
    for (int v = vec_of_thread(0); v < num_vecs; v += blockDim.x) {
      row.add_residual(v, row.load_x(v), row.load_residual(v));
    }
  }
  const auto load_h = [&](int v) {  // the residual holds the sum by now
    NormValues<In> h;
    (p.residual != nullptr ? row.load_residual(v) : row.load_x(v)).to_floats(h.values);
    return h;
  };
  const auto sum = [&](auto&& add) {
    float total = 0.0f;
    for (int v = vec_of_thread(0); v < num_vecs; v += blockDim.x) {
      total += row.sum_of(v, load_h(v), add);
    }
    return total;
  };
  const NormStatistics stats = Kind::statistics(sum, p, shared);
  const auto normalized = [&](int v) {
    NormValues<In> h = load_h(v);
    row.normalize(row.load_weight(v), stats, h);
    if constexpr (Kind::kTakesBias) row.add_bias(row.load_bias(v), h);
    return h;
  };
  float largest = 0.0f;
  if (row.needs_absmax()) {
    for (int v = vec_of_thread(0); v < num_vecs; v += blockDim.x) {
      largest = tile::Max::apply(largest, row.absmax_of(normalized(v)));
    }
  }
  const float inverse_scale = row.find_scale(largest, shared);
  for (int v = vec_of_thread(0); v < num_vecs; v += blockDim.x) {
    row.store(v, normalized(v), inverse_scale);
  }
}

template <class Arch, class Kind, class In, class Out>
void launch_norm(const NormParams& p, bool is_whole, int64_t num_rows, const Context& ctx) {
  if (num_rows == 0 || p.hidden == 0) return;
  const NormTile tile = choose_norm_tile(p.hidden, tile::kVecSize<In>);
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(num_rows)),
                          .block = dim3(static_cast<unsigned>(tile.num_threads)),
                          .overlaps_previous = kOverlaps<Arch>};
  if (!is_whole) return launch(&norm_long_kernel<Arch, Kind, In, Out, false>, shape, p, ctx);
  const bool fits = with_constant<1, 2>(tile.vecs_per_thread, [&](auto vecs) {
    with_constant<true, false>(p.residual != nullptr, [&](auto has_residual) {
      launch(&norm_kernel<Arch, Kind, In, Out, vecs(), has_residual()>, shape, p, ctx);
    });
  });
  if (!fits) launch(&norm_long_kernel<Arch, Kind, In, Out, true>, shape, p, ctx);
}

// Arguments to params, for both kinds, which differ only in the bias. Launches the kernel for whole
// vectors if every row of every tensor is aligned and a multiple of a vector.
template <class Arch, class Kind, class In, class Out, class Args>
void launch_norm_args(const Args& args, std::string_view x_name, const Context& ctx) {
  constexpr int kSize = tile::kVecSize<In>;
  const Rows x = as_rows(args.x, x_name);
  const Rows out = as_rows(args.out, "norm: out");
  const auto data = [](const std::optional<TensorView>& view) {
    return view ? view->data : nullptr;
  };
  NormParams p{.x = args.x.data,
               .weight = args.weight.data,
               .residual = data(args.residual),
               .out = args.out.data,
               .static_scale = static_cast<const float*>(data(args.static_scale)),
               .token_scale = static_cast<float*>(data(args.token_scale)),
               .x_stride = x.row_stride,
               .out_stride = out.row_stride,
               .hidden = count_cols(x, "norm: x"),
               .eps = args.eps};
  bool is_whole = can_vectorize<kSize>(args.x, x) && can_vectorize<kSize>(args.out, out);
  const auto also = [&](const TensorView& view, const Rows& rows) {
    is_whole = is_whole && can_vectorize<kSize>(view, rows);
  };
  also(args.weight, as_rows(args.weight, "norm: weight"));
  if (args.residual) {
    const Rows residual = as_rows(*args.residual, "norm: residual");
    p.residual_stride = residual.row_stride;
    also(*args.residual, residual);
  }
  if constexpr (requires { args.bias; }) {
    p.bias = data(args.bias);
    if (args.bias) also(*args.bias, as_rows(*args.bias, "norm: bias"));
  }
  launch_norm<Arch, Kind, In, Out>(p, is_whole, x.num_rows, ctx);
}

template <class Arch, class In, class Out>
void launch_rms_norm(const RmsNormArgs& args, const Context& ctx) {
  launch_norm_args<Arch, RootMeanSquare, In, Out>(args, "rms_norm: x", ctx);
}

template <class Arch, class In, class Out>
void launch_layer_norm(const LayerNormArgs& args, const Context& ctx) {
  launch_norm_args<Arch, MeanVariance, In, Out>(args, "layer_norm: x", ctx);
}

}  // namespace tessera::kernels
