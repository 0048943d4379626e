// Attention over parts of the keys, folded into one result: the kernel and its launcher.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/attention/merge/params.h"
#include "kernels/attention/softmax.cuh"
#include "kernels/launch.h"
#include "kernels/with_constant.h"
#include "tile/arch.cuh"
#include "tile/reduce.cuh"
#include "tile/vec.cuh"

namespace tessera::kernels::merge {

inline constexpr int kMergeWarps = 8;   // per block
inline constexpr int kMergeBytes = 8;   // access of a lane, if rows are aligned
inline constexpr int kMergeAtOnce = 8;  // parts in flight

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

// The lse of up to 32 parts, one per lane; -inf after the last.
__device__ __forceinline__ float lse_of_lane(const MergeParams& p, const float* lses, int first) {
  const int n = first + static_cast<int>(threadIdx.x) % 32;
  return n < p.num_parts ? lses[n * p.part_lse_stride] : -INFINITY;
}

// The largest lse, and the sum of exponentials relative to it. A NaN of any part propagates.
__device__ __forceinline__ SoftmaxRow sum_of_parts(const MergeParams& p, const float* lses) {
  SoftmaxRow total;
  for (int first = 0; first < p.num_parts; first += 32) {
    total.max =
        tile::Max::apply(total.max, tile::warp_reduce<tile::Max>(lse_of_lane(p, lses, first)));
  }
  for (int first = 0; first < p.num_parts; first += 32) {
    const float mine = lse_of_lane(p, lses, first);
    total.sum += tile::warp_reduce<tile::Sum>(state_factor(mine, total));
  }
  return total;
}

// Adds kVec columns from `column` on over all parts, in order. Called by all lanes of a warp.
template <class T, int kVec>
__device__ __forceinline__ void fold_columns(const MergeParams& p, const float* lses,
                                             const T* parts, int column, const SoftmaxRow& total,
                                             float (&sums)[kVec]) {
  for (int first = 0; first < p.num_parts; first += 32) {
    const float mine = state_factor(lse_of_lane(p, lses, first), total);
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
        if (n + j >= count || weight == 0.0f) continue;  // a part without weight may be NaN
        float values[kVec];
        rows[j].to_floats(values);
        TESSERA_UNROLL
        for (int i = 0; i < kVec; ++i) sums[i] = fmaf(weight, values[i], sums[i]);
      }
    }
  }
}

// One result from results over parts of the keys.
//
//   lse = log(sum exp(part_lses[n])),   out = sum exp(part_lses[n] - lse) * parts[n]
//
// Work      A warp takes a row: one query and head. Its lanes hold the weights of up to 32 parts
//           and broadcast them in turn; each lane has kVec columns at a time.
// Pipeline  Eight parts in flight per lane; other warps of the SM hide the rest of the latency.
// Output    Parts are added in order: the result depends on the parts alone.
// Cost      Reads each part once. In decoding they have just been written and are still in L2.
//           docs/kernels/decode.md
// Needs     rows aligned to kMergeBytes if kVec is above 1.
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
void launch_merge(const MergeAttentionArgs& args, const Context& ctx) {
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

}  // namespace tessera::kernels::merge
