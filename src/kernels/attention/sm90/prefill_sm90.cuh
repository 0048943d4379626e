// Prefill attention on Hopper: one warp feeds, two or three warpgroups compute, blocks stay.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/attention/sm90/consume.cuh"
#include "kernels/attention/sm90/turn.cuh"
#include "tile/ptx/warp.cuh"

namespace tessera::kernels {

template <class T, class Tile, bool kIsGeneral>
__global__ void __launch_bounds__(Tile::kThreads, 1)
    attention_prefill_sm90_kernel(const __grid_constant__ Sm90PrefillParams p) {
  using Shared = PrefillShared<T, Tile>;
  extern __shared__ __align__(1024) char dynamic[];
  Shared& shared = *reinterpret_cast<Shared*>(dynamic);
  PrefillRings<T, Tile> rings(shared);
  // By way of a shuffle the compiler learns that a warp agrees on it, and keeps the descriptors
  // that depend on it in uniform registers, where wgmma wants them.
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0);
  if (threadIdx.x == 0) rings.init(p.num_loaders);
  if (threadIdx.x == 32) {
    tile::ptx::prefetch_tensormap(&p.q);
    tile::ptx::prefetch_tensormap(&p.k);
    tile::ptx::prefetch_tensormap(&p.v);
    if constexpr (Shared::kStagesOut) tile::ptx::prefetch_tensormap(&p.out);
  }
  __syncthreads();
  if (warp < 4) {
    tile::ptx::setmaxnreg_dec<Tile::kProducerRegisters>();
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if (warp == 0) {
      PrefillProducer<T, Tile>{p, shared, rings, 0, lane}.run();
    } else if constexpr (Shared::kTurnsV) {
      PrefillTurner<T, Tile>{p, shared, rings, warp - 1, lane}.run();
    } else if (warp == 1) {
      PrefillProducer<T, Tile>{p, shared, rings, 0, lane}.template run_beside<false>();
    } else if (p.num_loaders == 2) {
      PrefillProducer<T, Tile> producer{p, shared, rings, 1, lane};
      if (warp == 2) {
        producer.template run_beside<true>();
      } else {
        producer.template run_beside<false>();
      }
    }
  } else {
    tile::ptx::setmaxnreg_inc<Tile::kConsumerRegisters>();
    PrefillConsumer<T, Tile, kIsGeneral>{p, shared, rings, warp / 4 - 1}.run();
  }
}

}  // namespace tessera::kernels
