// The steps of a norm kernel on one vector of a row: load, add, sum, normalise, quantise, store.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/elementwise/norm_params.h"
#include "kernels/elementwise/row_vec.cuh"

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

// Starts the weights on their way while the previous kernel still runs: one request a cache line,
// from the first block alone. From every block the requests themselves cost a third of the
// bandwidth at 16384 rows.
template <class In>
__device__ void prefetch_weights(const NormParams& p) {
  if (blockIdx.x != 0) return;
  constexpr int kLine = 128 / static_cast<int>(sizeof(In));
  const int begin = static_cast<int>(threadIdx.x) * kLine;
  if (begin >= p.hidden) return;
  tile::prefetch_l2(static_cast<const In*>(p.weight) + begin);
  if (p.bias != nullptr) tile::prefetch_l2(static_cast<const In*>(p.bias) + begin);
}

// What a kind of norm needs to know of the row. `sum(term)` adds term(h) over the thread's
// elements; the fold across the block happens here.
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
  static constexpr bool kIsQuantized = kQuantMax > 0.0f;  // otherwise y leaves rounded
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
  // Of the elements that lie in the row.
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
  // Zeros where there is no bias.
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

}  // namespace tessera::kernels
