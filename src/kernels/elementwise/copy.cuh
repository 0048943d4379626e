// Strided copies of any layout: planned on the host, then a gather of wide units or a transpose.
// SPDX-License-Identifier: MIT
#pragma once

#include <type_traits>

#include "kernels/elementwise/copy_params.h"
#include "kernels/elementwise/copy_transpose.cuh"
#include "kernels/elementwise/item_grid.cuh"
#include "kernels/elementwise/launch.h"
#include "kernels/launch.h"
#include "kernels/with_constant.h"
#include "tile/arch.cuh"
#include "tile/vec.cuh"

namespace tessera::kernels {

// The type that stands for a unit of kBytes.
template <int kBytes>
using CopyUnit = std::conditional_t<
    kBytes == 1, uint8_t,
    std::conditional_t<
        kBytes == 2, uint16_t,
        std::conditional_t<kBytes == 4, uint32_t,
                           std::conditional_t<kBytes == 8, uint64_t, tile::Vec<uint32_t, 4>>>>>;

inline constexpr int kGatherUnits = 4;  // of a thread

// A copy, unit by unit.
//
//   out[index] = x[index]
//
// Work      A thread owns kGatherUnits units, a block's width apart, among all of them numbered in
//           the order of out. Units are up to 16 bytes wide where x and out are both contiguous.
// Pipeline  All loads of a thread before its stores; many blocks on an SM overlap.
// Output    Bit for bit. A thread beyond the end writes the last unit again, with the same bits.
// Cost      Each unit read once and written once. With 16-byte units bandwidth is the limit; with
//           narrow ones the index arithmetic, about 8 instructions an axis and unit.
//           docs/kernels/elementwise.md
// Needs     addresses and strides aligned to the unit.
template <class Arch, class Unit>
__global__ void __launch_bounds__(kItemThreads)
    gather_kernel(const __grid_constant__ CopyGatherParams p) {
  tile::wait_for_previous(Arch{});
  tile::release_next(Arch{});

  uint32_t index[kGatherUnits];
  int64_t from[kGatherUnits] = {};
  int64_t to[kGatherUnits] = {};
  TESSERA_UNROLL
  for (int u = 0; u < kGatherUnits; ++u) {
    index[u] = min(item_index<kGatherUnits>(u), p.num_units - 1);
  }
  for (int d = 0; d < p.rank; ++d) {
    const CopyWalk axis = p.axes[d];
    TESSERA_UNROLL
    for (int u = 0; u < kGatherUnits; ++u) {
      const auto [outer, in_axis] = divide_with_remainder(index[u], axis.size);
      from[u] += in_axis * axis.x_stride;
      to[u] += in_axis * axis.out_stride;
      index[u] = outer;
    }
  }
  Unit units[kGatherUnits];
  TESSERA_UNROLL
  for (int u = 0; u < kGatherUnits; ++u) units[u] = static_cast<const Unit*>(p.x)[from[u]];
  TESSERA_UNROLL
  for (int u = 0; u < kGatherUnits; ++u) static_cast<Unit*>(p.out)[to[u]] = units[u];
}

template <class Arch, class Unit>
void launch_gather(const CopyPlan& plan, const Context& ctx) {
  CopyGatherParams p{.x = reinterpret_cast<const void*>(plan.x),
                     .out = reinterpret_cast<void*>(plan.out),
                     .num_units = static_cast<uint32_t>(plan.num_units()),
                     .rank = plan.rank};
  for (int d = 0; d < plan.rank; ++d) {
    const CopyAxis& axis = plan.axis(d);
    p.axes[d] = {make_divisor(axis.size), axis.x_stride, axis.out_stride};
  }
  launch(&gather_kernel<Arch, Unit>, item_shape<Arch>(p.num_units, kGatherUnits), p, ctx);
}

template <class Arch, class Bits>
void launch_copy(const CopyArgs& args, const Context& ctx) {
  if (args.x.num_elements() == 0) return;
  for_each_piece(plan_copy(args.x, args.out), kMaxItems, [&](const CopyPlan& plan) {
    with_constant<1, 2, 4, 8, 16>(plan.unit_bytes, [&](auto unit_bytes) {
      if constexpr (unit_bytes() >= sizeof(Bits)) {  // units only grow
        using Unit = CopyUnit<unit_bytes()>;
        if constexpr (unit_bytes() <= 8) {
          if (const std::optional<int> row_axis = find_transposed_axis(plan)) {
            return launch_transpose<Arch, Unit>(plan, *row_axis, ctx);
          }
        }
        launch_gather<Arch, Unit>(plan, ctx);
      }
    });
  });
}

}  // namespace tessera::kernels
