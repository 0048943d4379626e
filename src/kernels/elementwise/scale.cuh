// Scaled values, softly capped, added to a residual.
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>

#include "kernels/elementwise/item_grid.cuh"
#include "kernels/elementwise/launch.h"
#include "kernels/elementwise/scale_params.h"
#include "kernels/launch.h"
#include "kernels/with_constant.h"
#include "tile/arch.cuh"
#include "tile/vec.cuh"

namespace tessera::kernels {

// Values scaled, capped and added.
//
//   out = cap(scale * x) + residual,   cap(y) = softcap * tanh(y / softcap), or y
//
// Work      A thread owns one vector of the tensor, which is one long row.
// Pipeline  Both loads before the first use. Many blocks on an SM overlap.
// Output    Computed in float and rounded once. Out may be x or residual: a thread has read its
//           elements before it writes them.
// Cost      4 bytes an element in bf16, 6 with a residual. Bandwidth is the limit.
// Needs     kVec > 1: tensors that start on 16 bytes. kVec == 1: nothing.
template <class Arch, class T, bool kHasResidual, int kVec>
__global__ void __launch_bounds__(kItemThreads)
    scale_kernel(const __grid_constant__ ScaleParams p) {
  using Vec = tile::Vec<T, kVec>;
  tile::wait_for_previous(Arch{});
  tile::release_next(Arch{});
  const int64_t first = int64_t{item_index<1>(0)} * kVec;
  if (first >= p.count) return;
  const int size = static_cast<int>(min(int64_t{kVec}, p.count - first));
  const auto load = [&](const void* from) {
    const T* at = static_cast<const T*>(from) + first;
    return size == kVec ? Vec::load(at) : Vec::load_part(at, size);
  };
  const Vec x = load(p.x);
  Vec residual{};
  if constexpr (kHasResidual) residual = load(p.residual);
  float values[kVec];
  x.to_floats(values);
  TESSERA_UNROLL
  for (int i = 0; i < kVec; ++i) {
    values[i] *= p.scale;
    if (p.softcap > 0.0f) values[i] = p.softcap * tanhf(values[i] / p.softcap);
    if constexpr (kHasResidual) values[i] += tile::to_float(residual.values[i]);
  }
  T* out = static_cast<T*>(p.out) + first;
  if (size == kVec) {
    Vec::from_floats(values).store(out);
  } else {
    Vec::from_floats(values).store_part(out, size);
  }
}

template <class Arch, class T, bool kHasResidual, int kVec>
void launch_scale_pieces(const ScaleParams& whole, const Context& ctx) {
  for (int64_t begin = 0; begin < whole.count; begin += kMaxItems * kVec) {
    ScaleParams p = whole;
    p.x = static_cast<const T*>(p.x) + begin;
    if (kHasResidual) p.residual = static_cast<const T*>(p.residual) + begin;
    p.out = static_cast<T*>(p.out) + begin;
    p.count = std::min(kMaxItems * kVec, whole.count - begin);
    launch(&scale_kernel<Arch, T, kHasResidual, kVec>,
           item_shape<Arch>((p.count + kVec - 1) / kVec, 1), p, ctx);
  }
}

template <class Arch, class T>
void launch_scale(const ScaleArgs& args, const Context& ctx) {
  const ScaleParams p{.x = args.x.data,
                      .residual = args.residual ? args.residual->data : nullptr,
                      .out = args.out.data,
                      .count = args.x.num_elements(),
                      .scale = args.scale,
                      .softcap = args.softcap};
  const bool is_aligned = starts_on_vectors<T>(p.x, 0) && starts_on_vectors<T>(p.residual, 0) &&
                          starts_on_vectors<T>(p.out, 0);
  with_constant<true, false>(args.residual.has_value(), [&](auto has_residual) {
    with_constant<true, false>(is_aligned, [&](auto aligned) {
      launch_scale_pieces<Arch, T, has_residual(), aligned() ? tile::kVecSize<T> : 1>(p, ctx);
    });
  });
}

}  // namespace tessera::kernels
