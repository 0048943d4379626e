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

// Vector v of a row of T that is cut like a row of In; zeros beyond the row. kIsWhole: rows are
// aligned and made of whole vectors, so that an access is one instruction under a predicate. This
// is a constant because a branch on it in front of every load keeps the loads from overlapping.
template <bool kIsWhole, class In, class T>
__device__ auto load_vec(const NormParams& p, const T* row, int v) {
  using Vec = tile::Vec<T, tile::kVecSize<In>>;
  const int count = count_in<In>(p, v);
  if constexpr (!kIsWhole) return Vec::load_part(row + v * tile::kVecSize<In>, count);
  return count > 0 ? Vec::load(row + v * tile::kVecSize<In>) : Vec{};
}

template <bool kIsWhole, class In, class T>
__device__ void store_vec(const NormParams& p, T* row, int v,
                          const tile::Vec<T, tile::kVecSize<In>>& vec) {
  const int count = count_in<In>(p, v);
  T* data = row + v * tile::kVecSize<In>;
  if constexpr (!kIsWhole) {
    vec.store_part(data, count);
  } else if (count > 0) {
    vec.store(data);
  }
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

// One row of the matrix, in vectors.
template <class In, class Out, bool kIsWhole>
struct NormRow {
  static constexpr float kQuantMax = quant_max(dtype_of<Out>);
  static constexpr bool kIsQuantized = kQuantMax > 0.0f;  // otherwise y leaves rounded
  static constexpr int kSize = tile::kVecSize<In>;
  using Values = NormValues<In>;
  using Vec = tile::Vec<In, kSize>;

  const NormParams& p;
  int64_t row_idx;

  __device__ In* residual() const {
    return static_cast<In*>(p.residual) + row_idx * p.residual_stride;
  }
  __device__ Vec load_x(int v) const {
    return load_vec<kIsWhole, In>(p, static_cast<const In*>(p.x) + row_idx * p.x_stride, v);
  }
  __device__ Vec load_residual(int v) const {
    return load_vec<kIsWhole, In>(p, static_cast<const In*>(residual()), v);
  }
  __device__ Vec load_weight(int v) const {
    return load_vec<kIsWhole, In>(p, static_cast<const In*>(p.weight), v);
  }
  // residual = x + residual; returns the sum as it is stored: rounded to In.
  __device__ Vec add_residual(int v, const Vec& x, const Vec& addend) const {
    Values a;
    Values b;
    x.to_floats(a.values);
    addend.to_floats(b.values);
    TESSERA_UNROLL
    for (int i = 0; i < kSize; ++i) a.values[i] += b.values[i];
    const Vec sum = Vec::from_floats(a.values);
    store_vec<kIsWhole, In>(p, residual(), v, sum);
    return sum;
  }
  // Of the elements that lie in the row.
  template <class Term>
  __device__ float sum_of(int v, const Values& h, const Term& term) const {
    const int count = count_in<In>(p, v);
    float total = 0.0f;
    TESSERA_UNROLL
    for (int i = 0; i < kSize; ++i) {
      total += (kIsWhole ? count > 0 : i < count) ? term(h.values[i]) : 0.0f;
    }
    return total;
  }
  __device__ void normalize(int v, const Vec& weight, NormStatistics stats, Values& h) const {
    Values w;
    Values b{};
    weight.to_floats(w.values);
    if (p.bias != nullptr) {
      load_vec<kIsWhole, In>(p, static_cast<const In*>(p.bias), v).to_floats(b.values);
    }
    TESSERA_UNROLL
    for (int i = 0; i < kSize; ++i) {
      h.values[i] = fmaf((h.values[i] - stats.mean) * stats.rstd, w.values[i], b.values[i]);
    }
  }

  __device__ bool needs_absmax() const { return kIsQuantized && p.token_scale != nullptr; }
  // Elements beyond the row have weight and bias 0, so they are 0 here.
  __device__ float absmax_of(const Values& y) const {
    float largest = 0.0f;
    TESSERA_UNROLL
    for (int i = 0; i < kSize; ++i) largest = fmaxf(largest, fabsf(y.values[i]));
    return largest;
  }
  // 1 / scale of the row, from the largest magnitude this thread saw; writes a dynamic scale.
  __device__ float find_scale(float largest, NormReductions& shared) const {
    if constexpr (!kIsQuantized) return 1.0f;
    if (!needs_absmax()) return __fdiv_rn(1.0f, *p.static_scale);
    largest = tile::block_reduce<tile::Max>(largest, shared.absmax);
    const float scale = largest > 0.0f ? __fdiv_rn(largest, kQuantMax) : 1.0f;
    if (threadIdx.x == 0) p.token_scale[row_idx] = scale;
    return __fdiv_rn(1.0f, scale);
  }
  __device__ void store(int v, Values y, float inverse_scale) const {
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
    store_vec<kIsWhole, In>(p, static_cast<Out*>(p.out) + row_idx * p.out_stride, v, vec);
  }
};

}  // namespace tessera::kernels
