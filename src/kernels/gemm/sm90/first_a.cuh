// A of the first stages, by the consumers' own hands.
// SPDX-License-Identifier: MIT
//
// With few rows a kernel's time is that of reading B, and what comes on top is latency: B's first
// stages are there when the kernel in front ends, and everyone waits for A. The copy engine serves
// its orders in turn, so A would come behind the B that is under way; a plain load overtakes it.
#pragma once

#include "kernels/gemm/sm90/place.cuh"
#include "tile/ptx/barrier.cuh"
#include "tile/ptx/mbarrier.cuh"
#include "tile/ptx/shared.cuh"
#include "tile/swizzle.cuh"
#include "tile/unroll.cuh"

namespace tessera::kernels {

template <class Tile>
class Sm90FirstA {
 public:
  // The addresses: made before the kernel in front has finished.
  __device__ Sm90FirstA(const Sm90Params& p, int batch, uint32_t shared) {
    const int num_rows = p.epilogue.m;
    TESSERA_UNROLL
    for (int i = 0; i < kFirstAPieces; ++i) {
      const int piece = static_cast<int>(threadIdx.x) + i * 128;
      const int row = piece / 8 % num_rows;
      const int slab = piece / 8 / num_rows;  // from the front of k
      const int stage = slab / Tile::kSlabs;
      is_mine_[i] = stage < p.num_by_hand;
      is_there_[i] = is_mine_[i] && slab < p.num_slabs;  // the last stage may reach beyond k
      source_[i] = p.a_data + batch * p.a_batch_bytes + row * p.a_row_bytes + slab * kSlabBytes +
                   piece % 8 * 16;
      destination_[i] = shared + p.layout.a(stage) + slab % Tile::kSlabs * p.a_rows * kSlabBytes +
                        tile::swizzled(tile::Swizzle::b128, row * kSlabBytes + piece % 8 * 16);
    }
  }

  // When they may be read. Meets the other consumers: then A is where wgmma reads it.
  __device__ void load() const {
    uint4 pieces[kFirstAPieces];
    TESSERA_UNROLL
    for (int i = 0; i < kFirstAPieces; ++i) {
      pieces[i] = is_there_[i] ? *reinterpret_cast<const uint4*>(source_[i]) : uint4{};
    }
    TESSERA_UNROLL
    for (int i = 0; i < kFirstAPieces; ++i) {
      if (is_mine_[i]) tile::ptx::store_shared(destination_[i], pieces[i]);
    }
    tile::ptx::fence_proxy_async_shared();
    tile::ptx::bar_sync(1, 128);
  }

 private:
  const char* source_[kFirstAPieces];
  uint32_t destination_[kFirstAPieces];
  bool is_mine_[kFirstAPieces];
  bool is_there_[kFirstAPieces];
};

}  // namespace tessera::kernels
