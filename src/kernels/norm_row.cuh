// A row that is normalised: how threads cover it, its statistics, and its vectors. Shared by the
// norm kernels and by products that begin with a norm, so that both round alike.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/row_vec.cuh"
#include "tessera/core/dtype.h"

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

// RMSNorm: how an element is added to the sum of squares, and the statistics of the sum. The
// multiply-add is explicit, so that no compiler decides how the sum is rounded.
struct AddSquare {
  __device__ float operator()(float total, float h) const { return fmaf(h, h, total); }
};
__device__ inline NormStatistics root_mean_square(float squares, const NormParams& p) {
  return {0.0f, __frsqrt_rn(__fdiv_rn(squares, static_cast<float>(p.hidden)) + p.eps)};
}

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
  // Over the elements that lie in the row. `add` returns a sum with one more element in it.
  template <class Add>
  __device__ float sum_of(int v, const Values& h, const Add& add) const {
    const int count = p.hidden - v * kSize;
    float total = 0.0f;
    TESSERA_UNROLL
    for (int i = 0; i < kSize; ++i) {
      if (is_in_row<kIsWhole>(i, count)) total = add(total, h.values[i]);
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
    const float scale = scale_of(tile::block_reduce<tile::Max>(largest, shared.absmax));
    if (threadIdx.x == 0) p.token_scale[row_idx] = scale;
    return __fdiv_rn(1.0f, scale);
  }
  // The scale of a row with this largest magnitude.
  __device__ static float scale_of(float largest) {
    const float scale = tile::nan_if_infinite(__fdiv_rn(largest, kQuantMax));
    return scale == 0.0f ? 1.0f : scale;
  }
  // y as it is stored: rounded, or as codes.
  __device__ static tile::Vec<Out, kSize> rounded(Values y, float inverse_scale) {
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
    return vec;
  }
  __device__ void store(int v, const Values& y, float inverse_scale) const {
    store_row_vec<kIsWhole>(rounded(y, inverse_scale),
                            static_cast<Out*>(p.out) + row_idx * p.out_stride, v, p.hidden);
  }
};

}  // namespace tessera::kernels
