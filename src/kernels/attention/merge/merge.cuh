// Attention over parts of the keys folded into one result.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/attention/merge/launch.h"
#include "kernels/attention/merge/params.h"
#include "kernels/attention/online_softmax.cuh"
#include "kernels/launch.h"
#include "kernels/with_constant.h"
#include "tile/arch.cuh"
#include "tile/reduce.cuh"
#include "tile/vec.cuh"

namespace tessera::kernels {

inline constexpr int kMergeWarps = 8;   // of a block
inline constexpr int kMergeBytes = 8;   // a lane's access, where rows allow it
inline constexpr int kMergeAtOnce = 8;  // parts on their way

// One query and head.
struct MergeRow {
  int sequence, token, head;

  __device__ MergeRow(const MergeParams& p, int row) {
    const QuotientRemainder by_head =
        divide_with_remainder(static_cast<uint32_t>(row), p.num_heads);
    const QuotientRemainder by_token = divide_with_remainder(by_head.quotient, p.q_len);
    head = static_cast<int>(by_head.remainder);
    token = static_cast<int>(by_token.remainder);
    sequence = static_cast<int>(by_token.quotient);
  }
  template <class T>
  __device__ T* in(T* data, const RowStrides& strides) const {
    return data + sequence * strides.batch + token * strides.row + head * strides.head;
  }
};

// The logarithms of up to 32 parts, one a lane; -inf beyond the last.
__device__ __forceinline__ float lse_of_lane(const MergeParams& p, const float* lses, int first) {
  const int n = first + static_cast<int>(threadIdx.x) % 32;
  return n < p.num_parts ? lses[n * p.part_lse_stride] : -INFINITY;
}

// The largest logarithm, and the sum of exponentials relative to it. NaN of any part stays.
__device__ __forceinline__ SoftmaxRow sum_of_parts(const MergeParams& p, const float* lses) {
  SoftmaxRow total;
  for (int first = 0; first < p.num_parts; first += 32) {
    total.max =
        tile::Max::apply(total.max, tile::warp_reduce<tile::Max>(lse_of_lane(p, lses, first)));
  }
  for (int first = 0; first < p.num_parts; first += 32) {
    const float mine = lse_of_lane(p, lses, first);
    total.sum += tile::warp_reduce<tile::Sum>(exp2_approx((mine - total.finite_max()) * kLog2e));
  }
  return total;
}

// kVec columns from `column` on, of all parts in order. All lanes of a warp take part.
template <class T, int kVec>
__device__ __forceinline__ void fold_columns(const MergeParams& p, const float* lses,
                                             const T* parts, int column, const SoftmaxRow& total,
                                             float (&sums)[kVec]) {
  for (int first = 0; first < p.num_parts; first += 32) {
    const float mine = exp2_approx((lse_of_lane(p, lses, first) - total.finite_max()) * kLog2e);
    const int count = min(32, p.num_parts - first);
    const T* from = parts + first * p.part_stride + min(column, p.d - kVec);
    for (int n = 0; n < count; n += kMergeAtOnce) {
      tile::Vec<T, kVec> rows[kMergeAtOnce];
      TESSERA_UNROLL
      for (int j = 0; j < kMergeAtOnce; ++j) {
        if (n + j < count) rows[j] = tile::Vec<T, kVec>::load(from + (n + j) * p.part_stride);
      }
      TESSERA_UNROLL
      for (int j = 0; j < kMergeAtOnce; ++j) {
        const float weight = __shfl_sync(~0u, mine, (n + j) % 32);
        if (n + j >= count || weight == 0.0f) continue;  // what weighs nothing may hold anything
        float values[kVec];
        rows[j].to_floats(values);
        TESSERA_UNROLL
        for (int i = 0; i < kVec; ++i) sums[i] = fmaf(weight, values[i], sums[i]);
      }
    }
  }
}

// One result from those over parts of the keys.
//
//   lse = log(sum exp(part_lses[n])),   out = sum exp(part_lses[n] - lse) * parts[n]
//
// Work      A warp takes a row: one query and head. Its lanes hold the weights of up to 32 parts
//           and hand them around; each has kVec columns at a time.
// Pipeline  Eight parts on their way at once; other warps of the SM fill the gaps.
// Output    Parts are added in order: bits depend on the parts alone.
// Cost      Each part read once. The parts of decoding come from L2, where they have just been
//           written. docs/kernels/decode.md
// Needs     with kVec above 1, rows aligned to kMergeBytes.
template <class Arch, class T, int kVec>
__global__ void __launch_bounds__(kMergeWarps * 32)
    attention_merge_kernel(const __grid_constant__ MergeParams p) {
  tile::wait_for_previous(Arch{});
  tile::release_next(Arch{});
  const int index = static_cast<int>(blockIdx.x * kMergeWarps + threadIdx.x / 32);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (index >= p.num_rows) return;
  const MergeRow row(p, index);
  const float* lses = row.in(p.part_lses, p.part_lses_strides);
  const T* parts = row.in(static_cast<const T*>(p.parts), p.parts_strides);
  T* out = row.in(static_cast<T*>(p.out), p.out_strides);
  const SoftmaxRow total = sum_of_parts(p, lses);
  const float factor = total.sum == 0.0f ? 0.0f : 1.0f / total.sum;
  for (int first = 0; first < p.d; first += 32 * kVec) {
    const int column = first + lane * kVec;
    float sums[kVec] = {};
    fold_columns<T>(p, lses, parts, column, total, sums);
    if (column >= p.d) continue;
    TESSERA_UNROLL
    for (int i = 0; i < kVec; ++i) sums[i] *= factor;
    tile::Vec<T, kVec>::from_floats(sums).store(out + column);
  }
  if (p.lse == nullptr || lane != 0) return;
  *row.in(p.lse, p.lse_strides) =
      total.sum == 0.0f ? -INFINITY : total.finite_max() + logf(total.sum);
}

template <class Arch, class T>
void launch_attention_merge(const MergeAttentionArgs& args, const Context& ctx) {
  if (args.out.num_elements() == 0) return;
  const MergeParams p = merge_params(args);
  constexpr int kWide = kMergeBytes / static_cast<int>(sizeof(T));
  const bool is_aligned =
      has_aligned_rows(args.parts, kMergeBytes) && has_aligned_rows(args.out, kMergeBytes);
  with_constant<1, kWide>(is_aligned ? kWide : 1, [&](auto vec) {
    launch(&attention_merge_kernel<Arch, T, vec()>,
           {.grid = dim3(static_cast<unsigned>((p.num_rows + kMergeWarps - 1) / kMergeWarps)),
            .block = dim3(kMergeWarps * 32),
            .overlaps_previous = kOverlaps<Arch>},
           p, ctx);
  });
}

}  // namespace tessera::kernels
