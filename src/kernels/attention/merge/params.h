// What the merge kernel reads, made from the public arguments, and its launcher.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/attention/params.h"
#include "kernels/divisor.h"
#include "tessera/core/context.h"

namespace tessera::kernels::merge {

struct MergeParams {
  const void* parts;
  const float* part_lses;
  void* out;
  float* lse;           // null: not wanted
  int64_t part_stride;  // in elements, like all strides
  int64_t part_lse_stride;
  RowStrides parts_strides;
  RowStrides part_lses_strides;
  RowStrides out_strides;
  RowStrides lse_strides;
  Divisor num_heads;
  Divisor q_len;
  int num_rows;  // queries times heads
  int num_parts;
  int d;
};

inline int64_t num_rows(const MergeAttentionArgs& args) {
  return args.out.num_elements() / args.out.size(-1);
}

// The stride of an axis of one does not matter.
inline bool has_aligned_rows(const TensorView& t, int64_t bytes) {
  const int64_t element = bit_width(t.dtype) / 8;
  if (reinterpret_cast<uintptr_t>(t.data) % static_cast<uintptr_t>(bytes) != 0) return false;
  for (int axis = 0; axis < t.rank - 1; ++axis) {
    if (t.size(axis) > 1 && t.stride(axis) * element % bytes != 0) return false;
  }
  return t.size(-1) * element % bytes == 0;
}

inline MergeParams merge_params(const MergeAttentionArgs& args) {
  const bool has_q_axis = args.out.rank == 4;
  const auto lse_strides = [&](const TensorView& t, int batch) -> RowStrides {
    return {t.stride(batch), has_q_axis ? t.stride(batch + 2) : 0, t.stride(batch + 1)};
  };
  const auto row_strides = [&](const TensorView& t, int batch) -> RowStrides {
    return {t.stride(batch), has_q_axis ? t.stride(batch + 1) : 0, t.stride(-2)};
  };
  return {.parts = args.parts.data,
          .part_lses = args.part_lses.as<float>(),
          .out = args.out.data,
          .lse = args.lse.as<float>(),
          .part_stride = args.parts.stride(0),
          .part_lse_stride = args.part_lses.stride(0),
          .parts_strides = row_strides(args.parts, 1),
          .part_lses_strides = lse_strides(args.part_lses, 1),
          .out_strides = row_strides(args.out, 0),
          .lse_strides = args.lse.data != nullptr ? lse_strides(args.lse, 0) : RowStrides{},
          .num_heads = make_divisor(args.out.size(-2)),
          .q_len = make_divisor(has_q_axis ? args.out.size(1) : 1),
          .num_rows = static_cast<int>(num_rows(args)),
          .num_parts = static_cast<int>(args.parts.size(0)),
          .d = static_cast<int>(args.out.size(-1))};
}

template <class Arch, class T>
void launch_merge(const MergeAttentionArgs& args, const Context& ctx);

}  // namespace tessera::kernels::merge
