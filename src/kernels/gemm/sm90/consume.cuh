// Who empties the ring: warpgroups that multiply, then transform and store what they hold.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/gemm/epilogue.cuh"
#include "kernels/gemm/sm90/place.cuh"
#include "tile/arch.cuh"
#include "tile/descriptor.cuh"
#include "tile/fragment.cuh"
#include "tile/ptx/stmatrix.cuh"
#include "tile/ptx/tma_tensor.cuh"
#include "tile/ptx/wgmma.cuh"

namespace tessera::kernels {

template <class T, class Tile>
struct Sm90Consumer {
  static constexpr int kRegs = Tile::kCols / 2;
  static constexpr tile::Swizzle kSwizzle = tile::Swizzle::b128;

  const Sm90Params& p;
  const Sm90Ring& ring;
  uint32_t shared;
  int warpgroup;

  __device__ void release(const Sm90Ring::State& state) const {
    if (!p.shares_b) {
      if (threadIdx.x % 128 == 0) ring.consumer_release(state);
    } else if (threadIdx.x % 128 < 2) {
      ring.consumer_release_relaxed(state, threadIdx.x % 128);
    }
  }

  // One tile over all of k. One block of k is in flight while the next is waited for.
  __device__ void multiply(float (&d)[kRegs], Sm90Ring::State& state) const {
    const uint64_t first_a = tile::k_major_descriptor<kSwizzle>(
        shared + p.layout.a(0) + 64 * warpgroup * kSlabBytes, 64);
    const uint64_t first_b =
        tile::k_major_descriptor<kSwizzle>(shared + p.layout.b(0), Tile::kCols);
    Sm90Ring::State previous = state;
    for (int k_block = 0; k_block < p.num_k_blocks; ++k_block) {
      const uint64_t a = tile::advance(first_a, state.index * p.layout.a_slot_bytes);
      const uint64_t b = tile::advance(first_b, state.index * p.layout.b_slot_bytes);
      ring.consumer_wait(state);
      tile::ptx::wgmma_fence();
      TESSERA_UNROLL
      for (int step = 0; step < 4 * Tile::kSlabs; ++step) {
        const int slab = step / 4;
        tile::ptx::wgmma_ss<T, T>(
            d, tile::advance(a, slab * p.a_rows * kSlabBytes + 32 * (step % 4)),
            tile::advance(b, slab * Tile::kCols * kSlabBytes + 32 * (step % 4)),
            k_block > 0 || step > 0);
      }
      tile::ptx::wgmma_commit_group();
      tile::ptx::wgmma_wait_group<1>();
      if (k_block > 0) release(previous);
      previous = state;
      state.advance(p.layout.num_stages);
    }
    tile::ptx::wgmma_wait_group<0>();
    tile::ptx::wgmma_hold(d);
    release(previous);
  }

  // 16 rows of out by kOutCols columns, through shared memory, in boxes of kBoxCols columns.
  template <int kOutCols>
  __device__ void store_box_by_box(const float (&d)[kRegs], BlockPlace at, int lane) const {
    constexpr int kBoxCols = store_box_cols(kOutCols);
    constexpr tile::Swizzle kBox = tile::swizzle_of_span(2 * kBoxCols);
    const uint32_t buffers =
        shared + (4 * warpgroup + threadIdx.x % 128 / 32) * kStoreBuffers * kStoreBytes;
    const tile::MatrixRow row = tile::matrix_row_16x32(lane);
    TESSERA_UNROLL
    for (int box = 0; box < kOutCols / kBoxCols; ++box) {
      const uint32_t buffer = buffers + box % kStoreBuffers * kStoreBytes;
      if (lane == 0) tile::ptx::bulk_wait_group_read<kStoreBuffers - 1>();
      __syncwarp();
      TESSERA_UNROLL
      for (int step = 0; step < kBoxCols / 16; ++step) {
        uint32_t packed[4];
        tile::accumulator_to_a<T>(d, box * (kBoxCols / 16) + step, packed);
        tile::ptx::stmatrix(
            buffer + tile::swizzled(kBox, row.row * (2 * kBoxCols) + 32 * step + row.byte), packed);
      }
      tile::ptx::fence_proxy_async_shared();
      __syncwarp();
      if (lane == 0) {
        tile::ptx::tensor_store(&p.out, tile::ptx::Coord{at.col + box * kBoxCols, at.row, at.batch},
                                buffer);
        tile::ptx::bulk_commit_group();
      }
    }
  }

  __device__ void finish(float (&d)[kRegs], Sm90Place at) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int row =
        at.m_tile * Tile::kRows + 64 * warpgroup + static_cast<int>(threadIdx.x) % 128 / 32 * 16;
    const int col = at.n_tile * Tile::kCols;
    if (row >= p.epilogue.m || col >= p.epilogue.n) return;
    const BlockPlace lane_place{row + lane / 4, col + 2 * (lane % 4), at.batch};
    if (!p.epilogue.is_plain) transform<T>(d, p.epilogue, lane_place);
    if constexpr (Tile::kWarpgroups == 2) {
      if (p.layout.store_bytes > 0) {
        if (!p.epilogue.is_gated) {
          store_box_by_box<Tile::kCols>(d, {row, col, at.batch}, lane);
        } else if constexpr (Tile::kCols % 32 == 0) {
          store_box_by_box<Tile::kCols / 2>(d, {row, col / 2, at.batch}, lane);
        }
        return;
      }
    }
    store_direct<T>(d, p.epilogue, lane_place);
  }

  __device__ void run(int rank) const {
    const Sm90Tiles tiles = tiles_of(p);
    Sm90Ring::State state;
    tile::wait_for_previous(Sm90{});
    float d[kRegs];
    for (int i = tiles.first; i < p.num_tiles; i += tiles.step) {
      multiply(d, state);
      finish(d, place_of(p, i, rank));
    }
    if (threadIdx.x % 32 == 0) tile::ptx::bulk_wait_group<0>();
  }
};

}  // namespace tessera::kernels
