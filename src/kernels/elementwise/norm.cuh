// RMSNorm and LayerNorm kernels: the residual added first, the result quantised last, one pass.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/elementwise/launch.h"
#include "kernels/elementwise/norm_params.h"
#include "kernels/elementwise/norm_steps.cuh"
#include "kernels/launch.h"
#include "tile/arch.cuh"

namespace tessera::kernels {

// RMSNorm or LayerNorm of rows that fit in a block's registers.
//
//   h = x + residual;  y = h / rms(h) * weight   or   (h - mean(h)) / std(h) * weight + bias
//
// Work      One block a row; a thread owns kVecs vectors of 16 bytes, strided by the block.
// Pipeline  All loads of a row are issued before the first use, weights included; the blocks of
//           an SM overlap one another's reductions. Before the previous kernel has finished only
//           an L2 prefetch of the weights is issued.
// Output    The mean of squares (the variance: mean first, then squares around it) is folded by
//           shuffles, then once across warps: the order depends on hidden alone. A quantised
//           output adds one reduction for the row's largest magnitude where its scale is dynamic.
// Cost      Reads x and writes out once: 4 bytes an element in bf16, 8 with a residual, and about
//           4 flop. Bandwidth is the limit. docs/kernels/elementwise.md
// Needs     hidden up to 2048 vectors; rows of any alignment (p.is_vectorized says which).
template <class Arch, class Kind, class In, class Out, int kVecs>
__global__ void __launch_bounds__(kNormMaxThreads)
    norm_kernel(const __grid_constant__ NormParams p) {
  using Row = NormRow<Kind, In, Out>;
  __shared__ NormReductions shared;
  const int64_t row_idx = blockIdx.x;
  prefetch_weights<In>(p);
  tile::wait_for_previous(Arch{});

  typename Row::Vec x[kVecs];
  typename Row::Vec weight[kVecs];
  TESSERA_UNROLL
  for (int i = 0; i < kVecs; ++i) x[i] = Row::load_x(p, row_idx, vec_index(i));
  TESSERA_UNROLL
  for (int i = 0; i < kVecs; ++i) weight[i] = load_vec<In>(p, p.weight, vec_index(i));
  if (p.residual != nullptr) {  // every load is issued before the first store holds it back
    typename Row::Vec residual[kVecs];
    TESSERA_UNROLL
    for (int i = 0; i < kVecs; ++i) residual[i] = Row::load_residual(p, row_idx, vec_index(i));
    TESSERA_UNROLL
    for (int i = 0; i < kVecs; ++i) {
      x[i] = Row::add_residual(p, row_idx, vec_index(i), x[i], residual[i]);
    }
  }
  tile::release_next(Arch{});

  NormValues<In> h[kVecs];
  TESSERA_UNROLL
  for (int i = 0; i < kVecs; ++i) x[i].to_floats(h[i].values);
  const auto sum = [&](auto&& term) {
    float total = 0.0f;
    TESSERA_UNROLL
    for (int i = 0; i < kVecs; ++i) total += Row::sum_of(p, vec_index(i), h[i], term);
    return total;
  };
  const NormStatistics stats = Kind::statistics(sum, p, shared);
  float largest = 0.0f;
  TESSERA_UNROLL
  for (int i = 0; i < kVecs; ++i) {
    Row::normalize(p, vec_index(i), weight[i], stats, h[i]);
    largest = fmaxf(largest, Row::absmax_of(p, vec_index(i), h[i]));
  }
  const float inverse_scale = Row::find_scale(p, row_idx, largest, shared);
  TESSERA_UNROLL
  for (int i = 0; i < kVecs; ++i) Row::store(p, row_idx, vec_index(i), h[i], inverse_scale);
}

// The same for rows of any length, walked in steps of a block: once for each statistic, and once
// more to write. Rows beyond registers are rare, so this one is kept simple: what it reads again
// comes from L2.
template <class Arch, class Kind, class In, class Out>
__global__ void __launch_bounds__(kNormLongThreads)
    norm_long_kernel(const __grid_constant__ NormParams p) {
  using Row = NormRow<Kind, In, Out>;
  __shared__ NormReductions shared;
  const int64_t row_idx = blockIdx.x;
  tile::wait_for_previous(Arch{});
  tile::release_next(Arch{});

  const int num_vecs = count_vecs<In>(p);
  const auto load_h = [&](int v) {  // the residual holds the sum once it is added
    NormValues<In> h;
    const auto vec = p.residual ? Row::load_residual(p, row_idx, v) : Row::load_x(p, row_idx, v);
    vec.to_floats(h.values);
    return h;
  };
  if (p.residual != nullptr) {
    for (int v = vec_index(0); v < num_vecs; v += blockDim.x) {
      Row::add_residual(p, row_idx, v, Row::load_x(p, row_idx, v),
                        Row::load_residual(p, row_idx, v));
    }
  }
  const auto sum = [&](auto&& term) {
    float total = 0.0f;
    for (int v = vec_index(0); v < num_vecs; v += blockDim.x) {
      total += Row::sum_of(p, v, load_h(v), term);
    }
    return total;
  };
  const NormStatistics stats = Kind::statistics(sum, p, shared);
  const auto normalized = [&](int v) {
    NormValues<In> h = load_h(v);
    Row::normalize(p, v, load_vec<In>(p, p.weight, v), stats, h);
    return h;
  };
  float largest = 0.0f;
  if (Row::needs_absmax(p)) {
    for (int v = vec_index(0); v < num_vecs; v += blockDim.x) {
      largest = fmaxf(largest, Row::absmax_of(p, v, normalized(v)));
    }
  }
  const float inverse_scale = Row::find_scale(p, row_idx, largest, shared);
  for (int v = vec_index(0); v < num_vecs; v += blockDim.x) {
    Row::store(p, row_idx, v, normalized(v), inverse_scale);
  }
}

template <class Arch, class Kind, class In, class Out>
void launch_norm(const NormParams& p, int64_t num_rows, const Context& ctx) {
  if (num_rows == 0 || p.hidden == 0) return;
  const NormTile tile = choose_norm_tile(p.hidden, tile::kVecSize<In>);
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(num_rows)),
                          .block = dim3(static_cast<unsigned>(tile.num_threads)),
                          .overlaps_previous = kOverlaps<Arch>};
  switch (tile.vecs_per_thread) {
    case 1: return launch(&norm_kernel<Arch, Kind, In, Out, 1>, shape, p, ctx);
    case 2: return launch(&norm_kernel<Arch, Kind, In, Out, 2>, shape, p, ctx);
    case 4: return launch(&norm_kernel<Arch, Kind, In, Out, 4>, shape, p, ctx);
    default: return launch(&norm_long_kernel<Arch, Kind, In, Out>, shape, p, ctx);
  }
}

// Views to params, for both kinds: their arguments differ only in the bias.
template <class In, class Out, class Args>
NormParams norm_params(const Args& args, const Rows& x) {
  const auto data = [](const std::optional<TensorView>& view) {
    return view ? view->data : nullptr;
  };
  NormParams p{
      .x = args.x.data,
      .weight = args.weight.data,
      .residual = data(args.residual),
      .out = args.out.data,
      .static_scale = static_cast<const float*>(data(args.static_scale)),
      .token_scale = static_cast<float*>(data(args.token_scale)),
      .x_stride = x.row_stride,
      .residual_stride = args.residual ? as_rows(*args.residual, "residual").row_stride : 0,
      .out_stride = as_rows(args.out, "out").row_stride,
      .hidden = static_cast<int>(x.num_cols),
      .eps = args.eps};
  if constexpr (requires { args.bias; }) p.bias = data(args.bias);
  constexpr int kSize = tile::kVecSize<In>;
  const auto fits = [](const void* pointer, int64_t stride, size_t element_bytes) {
    return reinterpret_cast<uintptr_t>(pointer) % (kSize * element_bytes) == 0 &&
           stride % kSize == 0;
  };
  p.is_vectorized = p.hidden % kSize == 0 && fits(p.x, p.x_stride, sizeof(In)) &&
                    fits(p.weight, 0, sizeof(In)) && fits(p.bias, 0, sizeof(In)) &&
                    fits(p.residual, p.residual_stride, sizeof(In)) &&
                    fits(p.out, p.out_stride, sizeof(Out));
  return p;
}

template <class Arch, class In, class Out>
void launch_rms_norm(const RmsNormArgs& args, const Context& ctx) {
  const Rows x = as_rows(args.x, "rms_norm: x");
  launch_norm<Arch, RootMeanSquare, In, Out>(norm_params<In, Out>(args, x), x.num_rows, ctx);
}

template <class Arch, class In, class Out>
void launch_layer_norm(const LayerNormArgs& args, const Context& ctx) {
  const Rows x = as_rows(args.x, "layer_norm: x");
  launch_norm<Arch, MeanVariance, In, Out>(norm_params<In, Out>(args, x), x.num_rows, ctx);
}

}  // namespace tessera::kernels
