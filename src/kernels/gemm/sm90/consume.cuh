// Who empties the ring: warpgroups that multiply, then transform and store what they hold.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/gemm/epilogue.cuh"
#include "kernels/gemm/sm90/first_a.cuh"
#include "kernels/gemm/sm90/place.cuh"
#include "kernels/gemm/sm90/split.cuh"
#include "tile/arch.cuh"
#include "tile/descriptor.cuh"
#include "tile/fragment.cuh"
#include "tile/ptx/ld_global.cuh"
#include "tile/ptx/stmatrix.cuh"
#include "tile/ptx/tma_tensor.cuh"
#include "tile/ptx/wgmma.cuh"

namespace tessera::kernels {

template <class T, class Tile>
struct Sm90Consumer {
  static constexpr int kRegs = Tile::kCols / 2;
  static constexpr tile::Swizzle kSwizzle = tile::Swizzle::b128;

  // A warp's rows of a finished tile, rounded: half the registers of the sums, which are free
  // again.
  struct Pending {
    uint32_t packed[kRegs / 2];
    BlockPlace at;  // of the warp's first row and the tile's first column of results
    bool is_there;
  };

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

  // One block of k: its products are in flight when this returns, those of the block before done.
  template <bool kIsFirst>
  __device__ void multiply_block(float (&d)[kRegs], Sm90Ring::State& state,
                                 Sm90Ring::State& previous) const {
    const uint64_t first_a = tile::k_major_descriptor<kSwizzle>(
        shared + p.layout.a(0) + 64 * warpgroup * kSlabBytes, 64);
    const uint64_t first_b =
        tile::k_major_descriptor<kSwizzle>(shared + p.layout.b(0), Tile::kCols);
    const uint64_t a = tile::advance(first_a, state.index * p.layout.a_slot_bytes);
    const uint64_t b = tile::advance(first_b, state.index * p.layout.b_slot_bytes);
    ring.consumer_wait(state);
    tile::ptx::wgmma_fence();
    TESSERA_UNROLL
    for (int step = 0; step < 4 * Tile::kSlabs; ++step) {
      const int slab = step / 4;
      const uint64_t a_step = tile::advance(a, slab * p.a_rows * kSlabBytes + 32 * (step % 4));
      const uint64_t b_step = tile::advance(b, slab * Tile::kCols * kSlabBytes + 32 * (step % 4));
      if (kIsFirst && step == 0) {
        tile::ptx::wgmma_ss_first<T, T>(d, a_step, b_step);
      } else {
        tile::ptx::wgmma_ss<T, T>(d, a_step, b_step, true);
      }
    }
    tile::ptx::wgmma_commit_group();
    tile::ptx::wgmma_wait_group<1>();
    if (!kIsFirst) release(previous);
    previous = state;
    state.advance(p.layout.num_stages);
  }

  // One tile over blocks of k; meanwhile the tile before goes out, a box for each block of k.
  __device__ void multiply(float (&d)[kRegs], Sm90Ring::State& state, int num_blocks,
                           const Pending& pending) const {
    Sm90Ring::State previous = state;
    multiply_block<true>(d, state, previous);
    int k_block = 1;
    if constexpr (Tile::kStages) {
      if (pending.is_there) {
        TESSERA_UNROLL
        for (int box = 0; box < Boxes<Tile::kCols>::kCount; ++box) {
          store_box(pending, box);
          if (k_block < num_blocks) multiply_block<false>(d, state, previous);
          ++k_block;
        }
      }
    }
    for (; k_block < num_blocks; ++k_block) multiply_block<false>(d, state, previous);
    tile::ptx::wgmma_wait_group<0>();
    tile::ptx::wgmma_hold(d);
    release(previous);
  }

  // How a row of results is cut into boxes for the copy engine.
  template <int kOutCols>
  struct Boxes {
    static constexpr int kCols = store_box_cols(kOutCols);
    static constexpr int kCount = kOutCols / kCols;
    static constexpr tile::Swizzle kSwizzle = tile::swizzle_of_span(2 * kCols);
  };

  // 16 rows by one box of columns, through shared memory. kOutCols are the columns of the tile's
  // results.
  template <int kOutCols>
  __device__ void store_box_of(const Pending& pending, int box) const {
    using Box = Boxes<kOutCols>;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const uint32_t buffer =
        shared + ((4 * warpgroup + threadIdx.x % 128 / 32) * kStoreBuffers + box % kStoreBuffers) *
                     kStoreBytes;
    const tile::MatrixRow row = tile::matrix_row_16x32(lane);
    if (lane == 0) tile::ptx::bulk_wait_group_read<kStoreBuffers - 1>();
    __syncwarp();
    TESSERA_UNROLL
    for (int step = 0; step < Box::kCols / 16; ++step) {
      uint32_t packed[4];
      TESSERA_UNROLL
      for (int r = 0; r < 4; ++r) {
        packed[r] = pending.packed[4 * (box * (Box::kCols / 16) + step) + r];
      }
      tile::ptx::stmatrix(
          buffer + tile::swizzled(Box::kSwizzle, row.row * (2 * Box::kCols) + 32 * step + row.byte),
          packed);
    }
    tile::ptx::fence_proxy_async_shared();
    __syncwarp();
    if (lane == 0) {
      tile::ptx::tensor_store(
          &p.out,
          tile::ptx::Coord{pending.at.col + box * Box::kCols, pending.at.row, pending.at.batch},
          buffer);
      tile::ptx::bulk_commit_group();
    }
  }
  __device__ void store_box(const Pending& pending, int box) const {
    if (!p.epilogue.is_gated) {
      store_box_of<Tile::kCols>(pending, box);
    } else if constexpr (Tile::kCols % 32 == 0) {
      if (box < Boxes<Tile::kCols / 2>::kCount) store_box_of<Tile::kCols / 2>(pending, box);
    }
  }

  // The columns of a tile that a block of the cluster has folded.
  __device__ void finish_part(float (&d)[kRegs / Tile::kSplits], Sm90Place at, int rank) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const BlockPlace place{
        at.m_tile * Tile::kRows + static_cast<int>(threadIdx.x) / 32 * 16 + lane / 4,
        at.n_tile * Tile::kCols + rank * (Tile::kCols / Tile::kSplits) + 2 * (lane % 4), at.batch};
    if (!p.epilogue.is_plain) transform<T>(d, p.epilogue, place);
    store_direct<T>(d, p.epilogue, place);
  }

  // The residual's part of a tile, on its way to L2 while the tile is multiplied: a line a thread
  // and step.
  __device__ void prefetch_residual(Sm90Place at) const {
    constexpr int kLine = 64;  // elements
    const int num_cols = num_out_cols(p.epilogue);
    const int tile_cols = p.epilogue.is_gated ? Tile::kCols / 2 : Tile::kCols;
    const int lines = (tile_cols + kLine - 1) / kLine;
    const T* residual =
        static_cast<const T*>(p.epilogue.residual) + at.batch * p.epilogue.residual_batch_stride;
    for (int i = static_cast<int>(threadIdx.x); i < Tile::kRows * lines; i += 2 * Tile::kRows) {
      const int row = at.m_tile * Tile::kRows + i / lines;
      const int col = at.n_tile * tile_cols + i % lines * kLine;
      if (row >= p.epilogue.m || col >= num_cols) continue;
      tile::ptx::prefetch_l2(residual + row * p.epilogue.residual_stride + col);
    }
  }

  // Results go out at once, or are rounded and wait for the next tile to hide them.
  __device__ void finish(float (&d)[kRegs], Sm90Place at, Pending& pending) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int row =
        at.m_tile * Tile::kRows + 64 * warpgroup + static_cast<int>(threadIdx.x) % 128 / 32 * 16;
    const int col = at.n_tile * Tile::kCols;
    const bool is_stored = row < p.epilogue.m && col < p.epilogue.n;
    const BlockPlace place{row + lane / 4, col + 2 * (lane % 4), at.batch};
    if (is_stored && !p.epilogue.is_plain) transform<T>(d, p.epilogue, place);
    pending.is_there = Tile::kStages && is_stored && p.layout.store_bytes > 0;
    pending.at = {row, p.epilogue.is_gated ? col / 2 : col, at.batch};
    if constexpr (Tile::kStages) {
      // Written on every path, so that none keeps the registers of the tile before.
      TESSERA_UNROLL
      for (int i = 0; i < kRegs / 2; ++i) {
        pending.packed[i] = tile::pack_pair<T>(d[2 * i], d[2 * i + 1]);
      }
    }
    if (is_stored && !pending.is_there) store_direct<T>(d, p.epilogue, place);
  }

  __device__ void run(int rank) const {
    const Sm90Tiles tiles = tiles_of(p);
    Sm90Ring::State state;
    if constexpr (Tile::kWarpgroups == 1) {
      const Sm90FirstA<Tile> first(p, place_of(p, tiles.first, rank).batch, shared);
      tile::wait_for_previous(Sm90{});
      if (p.num_by_hand > 0) first.load();
    } else {
      tile::wait_for_previous(Sm90{});
    }
    const Sm90Range range = k_range<Tile>(p, rank);
    Pending pending;
    pending.is_there = false;
    if constexpr (Tile::kSplits == 1) {
      for (int i = tiles.first; i < p.num_tiles; i += tiles.step) {
        if (p.epilogue.residual != nullptr) prefetch_residual(place_of(p, i, rank));
        float d[kRegs];  // of this tile alone: between tiles their registers hold what is pending
        multiply(d, state, range.end - range.begin, pending);
        finish(d, place_of(p, i, rank), pending);
      }
      if constexpr (Tile::kStages) {
        if (pending.is_there) {
          TESSERA_UNROLL
          for (int box = 0; box < Boxes<Tile::kCols>::kCount; ++box) store_box(pending, box);
        }
      }
      if (threadIdx.x % 32 == 0) tile::ptx::bulk_wait_group<0>();
    } else {  // there is one tile: a loop would keep the sums alive while their parts are folded
      if (p.epilogue.residual != nullptr) prefetch_residual(place_of(p, tiles.first, rank));
      float d[kRegs];
      multiply(d, state, range.end - range.begin, pending);
      float part[kRegs / Tile::kSplits];
      fold_splits<Tile>(d, part, shared + p.layout.a(0), rank);
      finish_part(part, place_of(p, tiles.first, rank), rank);
    }
  }
};

}  // namespace tessera::kernels
