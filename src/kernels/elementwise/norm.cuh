// RMSNorm and LayerNorm kernels: the residual added first, the result quantised last, one pass.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/elementwise/launch.h"
#include "kernels/elementwise/row_vec.cuh"
#include "kernels/launch.h"
#include "kernels/with_constant.h"
#include "tile/arch.cuh"

namespace tessera::kernels {

// Plain data, copied by value into constant memory. Strides count elements from row to row.
struct NormParams {
  const void* x;              // [rows, hidden]
  const void* weight;         // [hidden]
  const void* bias;           // [hidden]; null: none
  void* residual;             // [rows, hidden], updated in place; null: none
  void* out;                  // [rows, hidden]
  const float* static_scale;  // [1], read; null: no fixed scale
  float* token_scale;         // [rows], written; null: no scale per row

  int64_t x_stride;
  int64_t residual_stride;
  int64_t out_stride;
  int hidden;
  float eps;
};
static_assert(std::is_trivially_copyable_v<NormParams>);

// How a block covers a row: `vecs_per_thread` vectors of 16 bytes for each of `num_threads`. A
// function of hidden alone, so that a row's sum is folded in the same order in any batch.
struct NormTile {
  int num_threads;
  int vecs_per_thread;  // 1 or 2; 0: the row does not fit in registers
};

inline constexpr int kNormMaxThreads = 1024;
inline constexpr unsigned kNormFewRows = 128;
inline constexpr int kNormLongThreads = 512;  // for rows that do not fit in registers

constexpr NormTile choose_norm_tile(int hidden, int vec_size) {
  const int num_vecs = (hidden + vec_size - 1) / vec_size;
  const auto tile = [&](int vecs_per_thread) {
    const int threads = (num_vecs + vecs_per_thread - 1) / vecs_per_thread;
    return NormTile{(threads + 31) / 32 * 32, vecs_per_thread};
  };
  // Few warps keep the block's reduction short; two vectors per thread keep loads in flight.
  if (num_vecs <= 128) return tile(1);
  if (num_vecs <= 2 * kNormMaxThreads) return tile(2);
  return {kNormLongThreads, 0};
}

// One buffer per reduction, so that none has to wait for readers of another.
struct NormReductions {
  float first[tile::kMaxWarps];
  float second[tile::kMaxWarps];
  float absmax[tile::kMaxWarps];
};

struct NormStatistics {
  float mean;  // 0 for RMSNorm
  float rstd;  // 1 / sqrt(mean of squares + eps)
};

// A vector of the row in float.
template <class In>
struct NormValues {
  float values[tile::kVecSize<In>];
};

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

// The statistics of a row for each kind of norm. `sum(term)` adds term(h) over the thread's
// elements; the sum across the block is done here.
struct RootMeanSquare {
  static constexpr bool kTakesBias = false;

  template <class SumOf>
  __device__ static NormStatistics statistics(const SumOf& sum, const NormParams& p,
                                              NormReductions& shared) {
    const float squares =
        tile::block_reduce<tile::Sum>(sum([](float h) { return h * h; }), shared.first);
    return {0.0f, __frsqrt_rn(__fdiv_rn(squares, static_cast<float>(p.hidden)) + p.eps)};
  }
};

struct MeanVariance {
  static constexpr bool kTakesBias = true;

  // Two folds, the second around the mean: the one-fold form E[h^2] - mean^2 cancels.
  template <class SumOf>
  __device__ static NormStatistics statistics(const SumOf& sum, const NormParams& p,
                                              NormReductions& shared) {
    const float count = static_cast<float>(p.hidden);
    const float total = tile::block_reduce<tile::Sum>(sum([](float h) { return h; }), shared.first);
    const float mean = __fdiv_rn(total, count);
    const auto square = [mean](float h) { return (h - mean) * (h - mean); };
    const float squares = tile::block_reduce<tile::Sum>(sum(square), shared.second);
    return {mean, __frsqrt_rn(__fdiv_rn(squares, count) + p.eps)};
  }
};

// One row of the matrix, in vectors.
template <class In, class Out, bool kIsWhole>
struct NormRow {
  static constexpr float kQuantMax = quant_max(dtype_of<Out>);
  static constexpr bool kIsQuantized = kQuantMax > 0.0f;  // otherwise y is only rounded
  static constexpr int kSize = tile::kVecSize<In>;
  using Values = NormValues<In>;
  using Vec = tile::Vec<In, kSize>;

  const NormParams& p;
  int64_t row_idx;

  __device__ In* residual() const {
    return static_cast<In*>(p.residual) + row_idx * p.residual_stride;
  }
  __device__ Vec load(const void* row, int v) const {
    return load_row_vec<kSize, kIsWhole>(static_cast<const In*>(row), v, p.hidden);
  }
  __device__ Vec load_x(int v) const {
    return load(static_cast<const In*>(p.x) + row_idx * p.x_stride, v);
  }
  __device__ Vec load_residual(int v) const { return load(residual(), v); }
  __device__ Vec load_weight(int v) const { return load(p.weight, v); }
  // residual = x + residual; returns the sum as it is stored: rounded to In.
  __device__ Vec add_residual(int v, const Vec& x, const Vec& addend) const {
    Values a;
    Values b;
    x.to_floats(a.values);
    addend.to_floats(b.values);
    TESSERA_UNROLL
    for (int i = 0; i < kSize; ++i) a.values[i] += b.values[i];
    const Vec sum = Vec::from_floats(a.values);
    store_row_vec<kIsWhole>(sum, residual(), v, p.hidden);
    return sum;
  }
  // Over the elements that lie in the row.
  template <class Term>
  __device__ float sum_of(int v, const Values& h, const Term& term) const {
    const int count = p.hidden - v * kSize;
    float total = 0.0f;
    TESSERA_UNROLL
    for (int i = 0; i < kSize; ++i) {
      total += is_in_row<kIsWhole>(i, count) ? term(h.values[i]) : 0.0f;
    }
    return total;
  }
  // Zeros if there is no bias.
  __device__ Vec load_bias(int v) const {
    const bool is_inside = v * kSize < p.hidden && p.bias != nullptr;
    if constexpr (!kIsWhole) return is_inside ? load(p.bias, v) : Vec{};
    return load_vec_if<In, kSize>(static_cast<const In*>(p.bias) + v * kSize, is_inside);
  }
  __device__ static void normalize(const Vec& weight, NormStatistics stats, Values& h) {
    Values w;
    weight.to_floats(w.values);
    TESSERA_UNROLL
    for (int i = 0; i < kSize; ++i) {
      h.values[i] = (h.values[i] - stats.mean) * stats.rstd * w.values[i];
    }
  }
  __device__ void add_bias(const Vec& bias, Values& h) const {
    if (p.bias == nullptr) return;  // adding a zero would lose the sign of -0
    Values b;
    bias.to_floats(b.values);
    TESSERA_UNROLL
    for (int i = 0; i < kSize; ++i) h.values[i] += b.values[i];
  }

  __device__ bool needs_absmax() const { return kIsQuantized && p.token_scale != nullptr; }
  // Elements beyond the row have weight and bias 0, so they are 0 here.
  __device__ float absmax_of(const Values& y) const {
    float largest = 0.0f;
    TESSERA_UNROLL
    for (int i = 0; i < kSize; ++i) largest = tile::Max::apply(largest, fabsf(y.values[i]));
    return largest;
  }
  // 1 / scale of the row, from the largest magnitude this thread saw; writes a dynamic scale.
  __device__ float find_scale(float largest, NormReductions& shared) const {
    if constexpr (!kIsQuantized) return 1.0f;
    if (!needs_absmax()) return __fdiv_rn(1.0f, *p.static_scale);
    largest = tile::block_reduce<tile::Max>(largest, shared.absmax);
    float scale = tile::nan_if_infinite(__fdiv_rn(largest, kQuantMax));
    if (scale == 0.0f) scale = 1.0f;
    if (threadIdx.x == 0) p.token_scale[row_idx] = scale;
    return __fdiv_rn(1.0f, scale);
  }
  __device__ void store(int v, Values y, float inverse_scale) const {
    if constexpr (kIsQuantized) {
      TESSERA_UNROLL
      for (int i = 0; i < kSize; ++i) y.values[i] *= inverse_scale;
    }
    if constexpr (dtype_of<Out> == DType::e4m3) {
      TESSERA_UNROLL
      for (int i = 0; i < kSize; ++i) y.values[i] = tile::nan_if_infinite(y.values[i]);
    }
    auto vec = tile::Vec<Out, kSize>::from_floats(y.values);
    if constexpr (dtype_of<Out> == DType::i8) {
      TESSERA_UNROLL
      for (int i = 0; i < kSize; ++i) {  // symmetric: -128 is not a code
        vec.values[i] = vec.values[i] < -127 ? int8_t{-127} : vec.values[i];
      }
    }
    store_row_vec<kIsWhole>(vec, static_cast<Out*>(p.out) + row_idx * p.out_stride, v, p.hidden);
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
  const auto sum = [&](auto&& term) {
    float total = 0.0f;
    TESSERA_UNROLL
    for (int i = 0; i < kVecs; ++i) total += row.sum_of(vec_of_thread(i), h[i], term);
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
  const auto sum = [&](auto&& term) {
    float total = 0.0f;
    for (int v = vec_of_thread(0); v < num_vecs; v += blockDim.x) {
      total += row.sum_of(v, load_h(v), term);
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
