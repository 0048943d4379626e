// The steps of a norm kernel on one vector of a row: load, add, sum, normalise, quantise, store.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/elementwise/norm_params.h"
#include "tile/reduce.cuh"
#include "tile/vec.cuh"

namespace tessera::kernels {

// One buffer a reduction, so that none waits for the readers of another.
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

// Which vector of the row is a thread's i-th.
__device__ inline int vec_index(int i) {
  return static_cast<int>(threadIdx.x) + i * static_cast<int>(blockDim.x);
}

template <class In>
__device__ int count_vecs(const NormParams& p) {
  return (p.hidden + tile::kVecSize<In> - 1) / tile::kVecSize<In>;
}

// Elements of vector v that lie in the row: all, some, or none (0 or less).
template <class In>
__device__ int count_in(const NormParams& p, int v) {
  return p.hidden - v * tile::kVecSize<In>;
}

// Vector v of a row of T cut like a row of In; zeros beyond the row.
template <class In, class T = In>
__device__ tile::Vec<T, tile::kVecSize<In>> load_vec(const NormParams& p, const void* row, int v) {
  using Vec = tile::Vec<T, tile::kVecSize<In>>;
  const int count = count_in<In>(p, v);
  if (count <= 0) return Vec{};
  const T* data = static_cast<const T*>(row) + v * tile::kVecSize<In>;
  return p.is_vectorized ? Vec::load(data) : Vec::load_part(data, count);
}

template <class In, class T>
__device__ void store_vec(const NormParams& p, void* row, int v,
                          const tile::Vec<T, tile::kVecSize<In>>& vec) {
  const int count = count_in<In>(p, v);
  if (count <= 0) return;
  T* data = static_cast<T*>(row) + v * tile::kVecSize<In>;
  p.is_vectorized ? vec.store(data) : vec.store_part(data, count);
}

// Starts the weights on their way while the previous kernel still runs: one request a cache line.
template <class In>
__device__ void prefetch_weights(const NormParams& p) {
  constexpr int kLine = 128 / static_cast<int>(sizeof(In));
  const int begin = static_cast<int>(threadIdx.x) * kLine;
  if (begin >= p.hidden) return;
  tile::prefetch_l2(static_cast<const In*>(p.weight) + begin);
  if (p.bias != nullptr) tile::prefetch_l2(static_cast<const In*>(p.bias) + begin);
}

// What a kind of norm needs to know of the row. `sum(term)` adds term(h) over the thread's
// elements; the fold across the block happens here.
struct RootMeanSquare {
  template <class SumOf>
  __device__ static NormStatistics statistics(const SumOf& sum, const NormParams& p,
                                              NormReductions& shared) {
    const float squares =
        tile::block_reduce<tile::Sum>(sum([](float h) { return h * h; }), shared.first);
    return {0.0f, __frsqrt_rn(__fdiv_rn(squares, static_cast<float>(p.hidden)) + p.eps)};
  }
};

struct MeanVariance {
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

template <class Kind, class In, class Out>
struct NormRow {
  static constexpr float kQuantMax = quant_max(dtype_of<Out>);
  static constexpr bool kIsQuantized = kQuantMax > 0.0f;  // otherwise y leaves rounded
  static constexpr int kSize = tile::kVecSize<In>;
  using Values = NormValues<In>;
  using Vec = tile::Vec<In, kSize>;

  __device__ static Vec load_x(const NormParams& p, int64_t row_idx, int v) {
    return load_vec<In>(p, static_cast<const In*>(p.x) + row_idx * p.x_stride, v);
  }
  __device__ static Vec load_residual(const NormParams& p, int64_t row_idx, int v) {
    return load_vec<In>(p, residual_row(p, row_idx), v);
  }
  // residual = x + residual; returns the sum as it is stored: rounded to In.
  __device__ static Vec add_residual(const NormParams& p, int64_t row_idx, int v, const Vec& x,
                                     const Vec& residual) {
    Values a;
    Values b;
    x.to_floats(a.values);
    residual.to_floats(b.values);
    TESSERA_UNROLL
    for (int i = 0; i < kSize; ++i) a.values[i] += b.values[i];
    const Vec sum = Vec::from_floats(a.values);
    store_vec<In>(p, residual_row(p, row_idx), v, sum);
    return sum;
  }
  template <class Term>
  __device__ static float sum_of(const NormParams& p, int v, const Values& h, const Term& term) {
    const int count = count_in<In>(p, v);
    float total = 0.0f;
    TESSERA_UNROLL
    for (int i = 0; i < kSize; ++i) {
      if (i < count) total += term(h.values[i]);
    }
    return total;
  }
  __device__ static void normalize(const NormParams& p, int v, const Vec& weight,
                                   NormStatistics stats, Values& h) {
    Values w;
    Values b{};
    weight.to_floats(w.values);
    if (p.bias != nullptr) load_vec<In>(p, p.bias, v).to_floats(b.values);
    TESSERA_UNROLL
    for (int i = 0; i < kSize; ++i) {
      h.values[i] = fmaf((h.values[i] - stats.mean) * stats.rstd, w.values[i], b.values[i]);
    }
  }

  __device__ static bool needs_absmax(const NormParams& p) {
    return kIsQuantized && p.token_scale != nullptr;
  }
  // Lanes beyond the row hold -mean * rstd * 0: nothing.
  __device__ static float absmax_of(const NormParams& p, int v, const Values& y) {
    float largest = 0.0f;
    if (!needs_absmax(p)) return largest;
    TESSERA_UNROLL
    for (int i = 0; i < kSize; ++i) largest = fmaxf(largest, fabsf(y.values[i]));
    return largest;
  }
  // 1 / scale of the row; writes the scale where it is dynamic.
  __device__ static float find_scale(const NormParams& p, int64_t row_idx, float largest,
                                     NormReductions& shared) {
    if constexpr (!kIsQuantized) return 1.0f;
    if (!needs_absmax(p)) return __fdiv_rn(1.0f, *p.static_scale);
    largest = tile::block_reduce<tile::Max>(largest, shared.absmax);
    const float scale = largest > 0.0f ? __fdiv_rn(largest, kQuantMax) : 1.0f;
    if (threadIdx.x == 0) p.token_scale[row_idx] = scale;
    return __fdiv_rn(1.0f, scale);
  }
  __device__ static void store(const NormParams& p, int64_t row_idx, int v, Values y,
                               float inverse_scale) {
    Out* row = static_cast<Out*>(p.out) + row_idx * p.out_stride;
    if constexpr (kIsQuantized) {
      TESSERA_UNROLL
      for (int i = 0; i < kSize; ++i) y.values[i] *= inverse_scale;
    }
    auto vec = tile::Vec<Out, kSize>::from_floats(y.values);
    if constexpr (dtype_of<Out> == DType::i8) {
      TESSERA_UNROLL
      for (int i = 0; i < kSize; ++i) {  // symmetric: -128 is not a code
        vec.values[i] = vec.values[i] < -127 ? int8_t{-127} : vec.values[i];
      }
    }
    store_vec<In>(p, row, v, vec);
  }

 private:
  __device__ static In* residual_row(const NormParams& p, int64_t row_idx) {
    return static_cast<In*>(p.residual) + row_idx * p.residual_stride;
  }
};

}  // namespace tessera::kernels
