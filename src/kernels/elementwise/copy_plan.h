// How a strided copy is done: which axes merge, how wide a unit may be, and which kernel runs.
// Plain functions of shapes, strides and addresses, tested without a GPU.
// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <cstdlib>
#include <optional>

#include "tessera/core/tensor.h"

namespace tessera::kernels {

struct CopyAxis {
  int64_t size;
  int64_t x_stride;  // in units
  int64_t out_stride;

  bool operator==(const CopyAxis&) const = default;
};

// A copy of units of unit_bytes each: as many elements as can move together. Axes of size 1 are
// removed, so rank 0 is a copy of one unit.
struct CopyPlan {
  uintptr_t x;  // address of the first unit
  uintptr_t out;
  int unit_bytes;  // 1, 2, 4, 8 or 16
  int rank = 0;
  std::array<CopyAxis, kMaxRank> axes{};  // innermost, the least |out_stride|, first

  CopyAxis& axis(int d) { return axes[static_cast<size_t>(d)]; }
  const CopyAxis& axis(int d) const { return axes[static_cast<size_t>(d)]; }
  int64_t num_units() const {
    int64_t count = 1;
    for (int d = 0; d < rank; ++d) count *= axis(d).size;
    return count;
  }
};

inline constexpr int kMaxCopyUnitBytes = 16;

// Merges each axis with the one inside it if one stride walks both of them in both tensors.
inline void merge_axes(CopyPlan& plan) {
  int kept = 0;
  for (int d = 0; d < plan.rank; ++d) {
    const CopyAxis axis = plan.axis(d);
    if (axis.size == 1) continue;
    if (kept > 0) {
      CopyAxis& inner = plan.axis(kept - 1);
      if (axis.x_stride == inner.size * inner.x_stride &&
          axis.out_stride == inner.size * inner.out_stride) {
        inner.size *= axis.size;
        continue;
      }
    }
    plan.axis(kept++) = axis;
  }
  plan.rank = kept;
}

// Whether a comes before b: the order of out decides, so that stores are contiguous.
inline bool is_inside(const CopyAxis& a, const CopyAxis& b) {
  if (a.out_stride != b.out_stride) return a.out_stride < b.out_stride;
  return std::abs(a.x_stride) < std::abs(b.x_stride);
}

// The plan in elements, with negative strides of out reversed and axes sorted and merged. The views
// have the same shape and at least one element.
inline CopyPlan plan_copy(const TensorView& x, const TensorView& out) {
  CopyPlan plan{.x = reinterpret_cast<uintptr_t>(x.data),
                .out = reinterpret_cast<uintptr_t>(out.data),
                .unit_bytes = bit_width(x.dtype) / 8};
  for (int d = 0; d < x.rank; ++d) {
    CopyAxis axis{x.size(d), x.stride(d), out.stride(d)};
    if (axis.out_stride < 0) {  // start from the other end on both sides
      plan.x += static_cast<uintptr_t>((axis.size - 1) * axis.x_stride * plan.unit_bytes);
      plan.out += static_cast<uintptr_t>((axis.size - 1) * axis.out_stride * plan.unit_bytes);
      axis.x_stride = -axis.x_stride;
      axis.out_stride = -axis.out_stride;
    }
    if (axis.size == 1) continue;
    int place = plan.rank++;
    for (; place > 0 && is_inside(axis, plan.axis(place - 1)); --place) {
      plan.axis(place) = plan.axis(place - 1);
    }
    plan.axis(place) = axis;
  }
  merge_axes(plan);
  return plan;
}

inline bool is_contiguous_inside(const CopyPlan& plan) {
  return plan.rank > 0 && plan.axis(0).x_stride == 1 && plan.axis(0).out_stride == 1;
}

// The widest unit that addresses and outer strides allow, whatever the length of the inner axis.
inline int aligned_unit_bytes(const CopyPlan& plan) {
  if (!is_contiguous_inside(plan)) return plan.unit_bytes;
  uint64_t bits = plan.x | plan.out;  // the lowest set bit is the common alignment
  for (int d = 1; d < plan.rank; ++d) {
    const CopyAxis& axis = plan.axis(d);
    bits |= static_cast<uint64_t>((axis.x_stride | axis.out_stride) * plan.unit_bytes);
  }
  bits |= kMaxCopyUnitBytes;
  return static_cast<int>(bits & (~bits + 1));
}

// Makes units as wide as alignment and the length of the inner axis allow.
inline CopyPlan widen_units(CopyPlan plan) {
  const int limit = aligned_unit_bytes(plan);
  while (plan.unit_bytes < limit && plan.axis(0).size % 2 == 0) {
    plan.unit_bytes *= 2;
    plan.axis(0).size /= 2;
    for (int d = 1; d < plan.rank; ++d) {
      plan.axis(d).x_stride /= 2;
      plan.axis(d).out_stride /= 2;
    }
  }
  merge_axes(plan);  // removes an inner axis of one unit
  return plan;
}

// The part [begin, end) along axis d.
inline CopyPlan slice_plan(CopyPlan plan, int d, int64_t begin, int64_t end) {
  CopyAxis& axis = plan.axis(d);
  plan.x += static_cast<uintptr_t>(begin * axis.x_stride * plan.unit_bytes);
  plan.out += static_cast<uintptr_t>(begin * axis.out_stride * plan.unit_bytes);
  axis.size = end - begin;
  merge_axes(plan);
  return plan;
}

// Calls f with pieces of at most max_units that cover the plan, with units as wide as possible. If
// only the length of a contiguous inner axis prevents wide units, and the copy is large enough to
// be worth two launches, it is cut into a body and a short end.
template <class F>
void for_each_piece(const CopyPlan& plan, int64_t max_units, F&& f) {
  constexpr int64_t kWorthTwoLaunches = 1 << 17;
  const int64_t num_units = plan.num_units();
  if (num_units > max_units) {
    const int64_t size = plan.axis(plan.rank - 1).size;
    const int64_t middle = size >= 128 ? size / 2 / 64 * 64 : size / 2;  // halves stay aligned
    for_each_piece(slice_plan(plan, plan.rank - 1, 0, middle), max_units, f);
    for_each_piece(slice_plan(plan, plan.rank - 1, middle, size), max_units, f);
    return;
  }
  const int64_t per_wide_unit = aligned_unit_bytes(plan) / plan.unit_bytes;
  if (per_wide_unit > 1 && num_units >= kWorthTwoLaunches) {
    const int64_t size = plan.axis(0).size;
    const int64_t body = size - size % per_wide_unit;
    if (body > 0 && body < size) {
      f(widen_units(slice_plan(plan, 0, 0, body)));
      f(widen_units(slice_plan(plan, 0, body, size)));
      return;
    }
  }
  f(widen_units(plan));
}

// Whether the copy is a transpose: out is contiguous along the inner axis 0, x along another one,
// which is returned. Short axes are left to the gather kernel, which wastes no tile on them.
inline std::optional<int> find_transposed_axis(const CopyPlan& plan) {
  constexpr int64_t kShortest = 8;
  if (plan.unit_bytes > 8 || plan.rank < 2) return std::nullopt;
  const CopyAxis& inner = plan.axis(0);
  if (inner.out_stride != 1 || inner.size < kShortest) return std::nullopt;
  if (inner.x_stride == 0 || inner.x_stride == 1) return std::nullopt;
  for (int d = 1; d < plan.rank; ++d) {
    if (plan.axis(d).x_stride == 1 && plan.axis(d).size >= kShortest) return d;
  }
  return std::nullopt;
}

}  // namespace tessera::kernels
