// Softmax over rows, with a scale and a mask.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/elementwise/launch.h"
#include "kernels/launch.h"
#include "kernels/row_vec.cuh"
#include "kernels/with_constant.h"
#include "tile/arch.cuh"

namespace tessera::kernels {

enum class MaskKind : uint8_t {
  none,
  visible,  // u8: 0 hides
  added,    // f32: minus infinity hides
};

// Plain data, copied by value into constant memory. Strides count elements.
struct SoftmaxParams {
  const void* x;     // [num_rows, cols]
  const void* mask;  // [mask_rows, cols]; row r reads mask row r % mask_rows; null without a mask
  void* out;         // [num_rows, cols]; may be x

  int64_t x_stride;
  int64_t mask_stride;
  int64_t out_stride;
  int64_t num_rows;
  int64_t mask_rows;  // at least 1
  int cols;
  float scale;
  bool is_vectorized;  // every access is a whole aligned vector: chooses the instance
};
static_assert(std::is_trivially_copyable_v<SoftmaxParams>);

inline constexpr int kSoftmaxMaxThreads = 512;  // row in registers: 128 registers per thread
inline constexpr int kSoftmaxLongThreads = 1024;
inline constexpr int kSoftmaxLongVecs = 2;  // loads in flight per thread of a long row

// Vectors of a row that each thread keeps in registers; 0: the row does not fit.
constexpr int choose_softmax_vecs(int num_vecs) {
  if (num_vecs <= 32) return 1;
  if (num_vecs <= 2 * kSoftmaxMaxThreads) return 2;
  return num_vecs <= 4 * kSoftmaxMaxThreads ? 4 : 0;
}

// exp(x) for x <= 0. For results rounded to 16 bits the exponential unit is accurate enough: its
// relative error, below 2^-16 down to x = -100, is less than a hundredth of a rounding step in bf16
// and a thirty-second of one in f16.
template <class T>
__device__ inline float exp_for(float x) {
  return sizeof(T) == 2 ? __expf(x) : expf(x);
}

// The steps of a softmax on one row, by vectors.
template <class T, MaskKind kMask, bool kIsVectorized>
struct SoftmaxRow {
  static constexpr int kSize = tile::kVecSize<T>;
  static constexpr float kHidden = -__builtin_huge_valf();
  using MaskElement = std::conditional_t<kMask == MaskKind::added, float, uint8_t>;

  // A vector as it was loaded, so that all loads can be issued before the first is used.
  struct Raw {
    tile::Vec<T, kSize> x;
    tile::Vec<MaskElement, kSize> mask;
  };
  struct Values {
    float values[kSize];
  };

  const T* x;
  const MaskElement* mask;
  T* out;
  int cols;
  float scale;

  __device__ SoftmaxRow(const SoftmaxParams& p, int64_t row_idx)
      : x(static_cast<const T*>(p.x) + row_idx * p.x_stride),
        mask(nullptr),
        out(static_cast<T*>(p.out) + row_idx * p.out_stride),
        cols(p.cols),
        scale(p.scale) {
    if constexpr (kMask != MaskKind::none) {
      mask = static_cast<const MaskElement*>(p.mask) + row_idx % p.mask_rows * p.mask_stride;
    }
  }

  __device__ Raw load(int v) const {
    Raw raw;
    raw.x = load_row_vec<kSize, kIsVectorized>(x, v, cols);
    if constexpr (kMask != MaskKind::none) {
      raw.mask = load_row_vec<kSize, kIsVectorized>(mask, v, cols);
    }
    return raw;
  }
  // scale * x + mask. Hidden elements, and those beyond the row, are minus infinity, even if x is
  // NaN there.
  __device__ Values logits(const Raw& raw, int v) const {
    const int count = cols - v * kSize;
    Values result;
    TESSERA_UNROLL
    for (int i = 0; i < kSize; ++i) {
      bool is_visible = is_in_row<kIsVectorized>(i, count);
      float logit = __fmul_rn(tile::to_float(raw.x.values[i]), scale);
      if constexpr (kMask == MaskKind::visible) is_visible &= raw.mask.values[i] != 0;
      if constexpr (kMask == MaskKind::added) {
        is_visible &= raw.mask.values[i] != kHidden;
        logit += raw.mask.values[i];
      }
      result.values[i] = is_visible ? logit : kHidden;
    }
    return result;
  }
  __device__ void store(const Values& probabilities, int v) const {
    store_row_vec<kIsVectorized>(tile::Vec<T, kSize>::from_floats(probabilities.values), out, v,
                                 cols);
  }

  __device__ static float max_of(const Values& logits) {
    float top = logits.values[0];
    TESSERA_UNROLL
    for (int i = 1; i < kSize; ++i) top = tile::Max::apply(top, logits.values[i]);
    return top;
  }
  // Turns logits into exp(logit - top) and returns their sum.
  __device__ static float exponentiate(Values& logits, float top) {
    float sum = 0.0f;
    TESSERA_UNROLL
    for (int i = 0; i < kSize; ++i) {
      logits.values[i] = exp_for<T>(logits.values[i] - top);
      sum += logits.values[i];
    }
    return sum;
  }
  __device__ static void multiply(Values& values, float factor) {
    TESSERA_UNROLL
    for (int i = 0; i < kSize; ++i) values.values[i] *= factor;
  }
  // If nothing is visible, the base is 0: every exponential is 0, and so is their sum.
  __device__ static float base_of(float top) { return top == kHidden ? 0.0f : top; }
  __device__ static float inverse_of(float sum) {
    return sum == 0.0f ? 0.0f : __fdiv_rn(1.0f, sum);
  }
};

// Softmax of rows that fit in a block's registers.
//
//   out = exp(l - max(l)) / sum(exp(l - max(l))),  l = scale * x + mask
//
// Work      One block per row, or one warp where a row is at most 64 vectors; a thread owns kVecs
//           vectors of 16 bytes, strided by the row's threads.
// Pipeline  All loads of a row, mask included, are issued before the first use; logits stay in
//           registers as floats, so each exponential is computed once.
// Output    NaN passes through the maximum and makes the row NaN; a row with nothing visible is
//           zeros. The sum's order depends on cols alone.
// Cost      Reads x and writes out once: 4 bytes per element in bf16 (5 or 8 with a mask of its
//           own), and about 5 flop and one exponential. Bandwidth is the limit.
//           docs/kernels/elementwise.md
// Needs     cols up to 2048 vectors; whole aligned vectors if kIsVectorized.
template <class Arch, class T, MaskKind kMask, bool kIsVectorized, int kVecs>
__global__ void __launch_bounds__(kSoftmaxMaxThreads)
    softmax_kernel(const __grid_constant__ SoftmaxParams p) {
  using Row = SoftmaxRow<T, kMask, kIsVectorized>;
  __shared__ float max_parts[tile::kMaxWarps];
  __shared__ float sum_parts[tile::kMaxWarps];
  const int64_t row_idx = row_of_thread();
  if (row_idx >= p.num_rows) return;  // a whole warp; such blocks have no barrier
  const Row row(p, row_idx);
  tile::wait_for_previous(Arch{});

  typename Row::Raw raw[kVecs];
  TESSERA_UNROLL
  for (int i = 0; i < kVecs; ++i) raw[i] = row.load(vec_of_thread(i));
  tile::release_next(Arch{});

  typename Row::Values values[kVecs];
  float top = Row::kHidden;
  TESSERA_UNROLL
  for (int i = 0; i < kVecs; ++i) {
    values[i] = row.logits(raw[i], vec_of_thread(i));
    top = tile::Max::apply(top, Row::max_of(values[i]));
  }
  top = Row::base_of(tile::block_reduce<tile::Max>(top, max_parts));
  float sum = 0.0f;
  TESSERA_UNROLL
  for (int i = 0; i < kVecs; ++i) sum += Row::exponentiate(values[i], top);
  const float inverse = Row::inverse_of(tile::block_reduce<tile::Sum>(sum, sum_parts));
  TESSERA_UNROLL
  for (int i = 0; i < kVecs; ++i) {
    Row::multiply(values[i], inverse);
    row.store(values[i], vec_of_thread(i));
  }
}

// Softmax of rows of any length, walked twice by one block: once to keep a running maximum and the
// sum of exponentials, and once more to write. The second pass reads mostly from L2.
template <class Arch, class T, MaskKind kMask, bool kIsVectorized>
__global__ void __launch_bounds__(kSoftmaxLongThreads)
    softmax_long_kernel(const __grid_constant__ SoftmaxParams p) {
  using Row = SoftmaxRow<T, kMask, kIsVectorized>;
  __shared__ float max_parts[tile::kMaxWarps];
  __shared__ float sum_parts[tile::kMaxWarps];
  const Row row(p, row_of_thread());
  tile::wait_for_previous(Arch{});
  tile::release_next(Arch{});

  const int num_vecs = count_vecs(p.cols, Row::kSize);
  const auto for_each_vec = [&](auto&& body) {
    for (int i = 0; vec_of_thread(i) < num_vecs; i += kSoftmaxLongVecs) {
      typename Row::Raw raw[kSoftmaxLongVecs];
      TESSERA_UNROLL
      for (int j = 0; j < kSoftmaxLongVecs; ++j) raw[j] = row.load(vec_of_thread(i + j));
      TESSERA_UNROLL
      for (int j = 0; j < kSoftmaxLongVecs; ++j) {
        const int v = vec_of_thread(i + j);
        auto logits = row.logits(raw[j], v);
        body(logits, v);
      }
    }
  };
  float top = Row::kHidden;
  float sum = 0.0f;
  for_each_vec([&](auto& logits, int) {
    const float higher = tile::Max::apply(top, Row::max_of(logits));
    const float base = Row::base_of(higher);
    sum = sum * exp_for<T>(top - base) + Row::exponentiate(logits, base);
    top = higher;
  });
  const float base = Row::base_of(tile::block_reduce<tile::Max>(top, max_parts));
  sum = tile::block_reduce<tile::Sum>(sum * exp_for<T>(top - base), sum_parts);
  const float inverse = Row::inverse_of(sum);
  for_each_vec([&](auto& logits, int v) {
    Row::exponentiate(logits, base);
    Row::multiply(logits, inverse);
    row.store(logits, v);
  });
}

template <class Arch, class T, MaskKind kMask>
void launch_softmax_rows(const SoftmaxParams& p, const Context& ctx) {
  const int num_vecs = count_vecs(p.cols, tile::kVecSize<T>);
  const int vecs = choose_softmax_vecs(num_vecs);
  const RowBlock block = vecs > 0 ? choose_row_block(num_vecs, vecs, kSoftmaxMaxThreads)
                                  : RowBlock{kSoftmaxLongThreads, 1};
  const LaunchShape shape{
      .grid = block.grid(p.num_rows), .block = block.block(), .overlaps_previous = kOverlaps<Arch>};
  if (!p.is_vectorized) {  // rare: the widest kernel serves all rows that fit
    return vecs > 0 ? launch(&softmax_kernel<Arch, T, kMask, false, 4>, shape, p, ctx)
                    : launch(&softmax_long_kernel<Arch, T, kMask, false>, shape, p, ctx);
  }
  switch (vecs) {
    case 1: return launch(&softmax_kernel<Arch, T, kMask, true, 1>, shape, p, ctx);
    case 2: return launch(&softmax_kernel<Arch, T, kMask, true, 2>, shape, p, ctx);
    case 4: return launch(&softmax_kernel<Arch, T, kMask, true, 4>, shape, p, ctx);
    default: return launch(&softmax_long_kernel<Arch, T, kMask, true>, shape, p, ctx);
  }
}

template <class Arch, class T>
void launch_softmax(const SoftmaxArgs& args, const Context& ctx) {
  constexpr int kSize = tile::kVecSize<T>;
  const Rows x = as_rows(args.x, "softmax: x");
  const Rows out = as_rows(args.out, "softmax: out");
  if (x.num_rows == 0 || x.num_cols == 0) return;
  SoftmaxParams p{
      .x = args.x.data,
      .mask = nullptr,
      .out = args.out.data,
      .x_stride = x.row_stride,
      .mask_stride = 0,
      .out_stride = out.row_stride,
      .num_rows = x.num_rows,
      .mask_rows = 1,
      .cols = count_cols(x, "softmax: x"),
      .scale = args.scale,
      .is_vectorized = can_vectorize<kSize>(args.x, x) && can_vectorize<kSize>(args.out, out)};
  MaskKind kind = MaskKind::none;
  if (args.mask) {
    const Rows mask = as_rows(*args.mask, "softmax: mask");
    kind = args.mask->dtype == DType::u8 ? MaskKind::visible : MaskKind::added;
    p.mask = args.mask->data;
    p.mask_stride = mask.row_stride;
    p.mask_rows = mask.num_rows;
    p.is_vectorized = p.is_vectorized && can_vectorize<kSize>(*args.mask, mask);
  }
  with_constant<MaskKind::none, MaskKind::visible, MaskKind::added>(
      kind, [&](auto kind) { launch_softmax_rows<Arch, T, kind()>(p, ctx); });
}

}  // namespace tessera::kernels
