// The matrix product on Hopper: TMA feeds a ring, warpgroups multiply from it, one kernel for
// every m.
// SPDX-License-Identifier: MIT
//
// One warp produces: it fills the ring with slabs of A and B, far ahead. One or two warpgroups
// consume: each holds 64 rows by kCols columns of the product in registers. Blocks are persistent
// and walk the tiles in an order that keeps what they share in L2; in a cluster of two, each block
// loads half of the operand they share and multicasts it.
//
// k is walked from the front in steps of 16 into one accumulator, whatever the tile: a row of A
// gives the same bits in any m, and the choice of tile is free.
#pragma once

#include "kernels/gemm/epilogue.cuh"
#include "kernels/gemm/sm90/params.h"
#include "tile/arch.cuh"
#include "tile/descriptor.cuh"
#include "tile/fragment.cuh"
#include "tile/pipeline.cuh"
#include "tile/ptx/cluster.cuh"
#include "tile/ptx/stmatrix.cuh"
#include "tile/ptx/tma_tensor.cuh"
#include "tile/ptx/warp.cuh"
#include "tile/ptx/wgmma.cuh"

namespace tessera::kernels {

using Sm90Ring = tile::Pipeline<kMaxStages>;

// A tile of this block.
struct Sm90Place {
  int m_tile;
  int n_tile;
  int batch;
};

// The cluster's index-th tile: `group` tiles of m, then the next tile of n, then the next group.
__device__ inline Sm90Place place_of(const Sm90Params& p, int index, int rank) {
  const int per_batch = p.num_m_tiles * p.num_n_tiles;
  const int batch = index / per_batch;
  index -= batch * per_batch;
  const int group = index / (p.group * p.num_n_tiles);
  const int first = group * p.group;
  const int size = min(p.group, p.num_m_tiles - first);
  index -= first * p.num_n_tiles;
  const int m_tile = first + index % size;
  const int n_tile = index / size;
  switch (p.share) {
    case Share::a: return {m_tile, 2 * n_tile + rank, batch};
    case Share::b: return {2 * m_tile + rank, n_tile, batch};
    default: return {m_tile, n_tile, batch};
  }
}

// The tiles of a block, in order: every cluster takes one, then the next that none has taken.
template <class F>
__device__ void for_each_tile(const Sm90Params& p, int rank, const F& f) {
  const int num_sharers = p.share == Share::none ? 1 : 2;
  const int step = static_cast<int>(gridDim.x) / num_sharers;
  for (int i = static_cast<int>(blockIdx.x) / num_sharers; i < p.num_tiles; i += step) {
    f(place_of(p, i, rank));
  }
}

template <class Tile>
struct Sm90Producer {
  const Sm90Params& p;
  const Sm90Ring& ring;
  uint32_t shared;
  int rank;

  // Where two blocks share the operand, each loads its half of the rows for both.
  __device__ void load(const CUtensorMap& map, uint32_t slot, int rows, int k, int row, int batch,
                       bool is_shared, uint32_t full) const {
    if (is_shared) {
      const int half = rows / 2;
      tile::ptx::tensor_load_multicast(slot + rank * half * kSlabBytes, &map,
                                       tile::ptx::Coord{k, row + rank * half, batch}, full,
                                       uint16_t{3});
    } else {
      tile::ptx::tensor_load(slot, &map, tile::ptx::Coord{k, row, batch}, full);
    }
  }
  __device__ void load_a(const Sm90Ring::State& state, Sm90Place at, int k_block) const {
    TESSERA_UNROLL
    for (int slab = 0; slab < Tile::kSlabs; ++slab) {
      load(p.a, shared + p.layout.a(state.index) + slab * p.a_rows * kSlabBytes, p.a_rows,
           k_block * Tile::kBlockK + 64 * slab, at.m_tile * Tile::kRows, at.batch,
           p.share == Share::a, ring.full(state));
    }
  }
  __device__ void load_b(const Sm90Ring::State& state, Sm90Place at, int k_block) const {
    TESSERA_UNROLL
    for (int slab = 0; slab < Tile::kSlabs; ++slab) {
      load(p.b, shared + p.layout.b(state.index) + slab * Tile::kCols * kSlabBytes, Tile::kCols,
           k_block * Tile::kBlockK + 64 * slab, at.n_tile * Tile::kCols,
           p.is_b_batched ? at.batch : 0, p.share == Share::b, ring.full(state));
    }
  }

  // One thread. B that nothing writes is under way before the kernel in front has finished.
  __device__ void run() const {
    const auto bytes = static_cast<uint32_t>(p.layout.a_slot_bytes + p.layout.b_slot_bytes);
    const int num_stages = p.layout.num_stages;
    int num_early = 0;
    if (p.is_b_static) {
      num_early = min(num_stages, p.num_k_blocks);
      const int num_sharers = p.share == Share::none ? 1 : 2;
      const Sm90Place first = place_of(p, static_cast<int>(blockIdx.x) / num_sharers, rank);
      Sm90Ring::State state;
      for (int k_block = 0; k_block < num_early; ++k_block) {
        ring.producer_expect(state, bytes);
        load_b(state, first, k_block);
        state.advance(num_stages);
      }
    }
    tile::wait_for_previous(Sm90{});
    Sm90Ring::State state;
    for_each_tile(p, rank, [&](Sm90Place at) {
      for (int k_block = 0; k_block < p.num_k_blocks; ++k_block) {
        if (num_early > 0) {
          --num_early;
          load_a(state, at, k_block);
        } else {
          ring.producer_acquire(state);
          ring.producer_expect(state, bytes);
          load_a(state, at, k_block);
          load_b(state, at, k_block);
        }
        state.advance(num_stages);
      }
    });
    ring.producer_drain(state, num_stages);
  }
};

template <class T, class Tile>
struct Sm90Consumer {
  static constexpr int kRegs = Tile::kCols / 2;
  static constexpr tile::Swizzle kSwizzle = tile::Swizzle::b128;

  const Sm90Params& p;
  const Sm90Ring& ring;
  uint32_t shared;
  int warpgroup;

  __device__ void release(const Sm90Ring::State& state) const {
    if (p.share == Share::none) {
      if (threadIdx.x % 128 == 0) ring.consumer_release(state);
    } else if (threadIdx.x % 128 < 2) {
      ring.consumer_release_relaxed(state, threadIdx.x % 128);
    }
  }

  // One tile over all of k. One block of k is in flight while the next is waited for.
  __device__ void multiply(float (&d)[kRegs], Sm90Ring::State& state) const {
    Sm90Ring::State previous = state;
    for (int k_block = 0; k_block < p.num_k_blocks; ++k_block) {
      ring.consumer_wait(state);
      tile::ptx::wgmma_fence();
      TESSERA_UNROLL
      for (int slab = 0; slab < Tile::kSlabs; ++slab) {
        const uint64_t a = tile::k_major_descriptor<kSwizzle>(
            shared + p.layout.a(state.index) + (slab * p.a_rows + 64 * warpgroup) * kSlabBytes, 64);
        const uint64_t b = tile::k_major_descriptor<kSwizzle>(
            shared + p.layout.b(state.index) + slab * Tile::kCols * kSlabBytes, Tile::kCols);
        TESSERA_UNROLL
        for (int step = 0; step < 4; ++step) {
          tile::ptx::wgmma_ss<T, T>(d, tile::advance(a, 32 * step), tile::advance(b, 32 * step),
                                    k_block > 0 || slab > 0 || step > 0);
        }
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
    constexpr int kBoxCols = kOutCols % 64 == 0 ? 64 : kOutCols % 32 == 0 ? 32 : 16;
    constexpr tile::Swizzle kBox = kBoxCols == 64   ? tile::Swizzle::b128
                                   : kBoxCols == 32 ? tile::Swizzle::b64
                                                    : tile::Swizzle::b32;
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
    transform<T>(d, p.epilogue, lane_place);
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
    tile::wait_for_previous(Sm90{});
    Sm90Ring::State state;
    float d[kRegs];
    for_each_tile(p, rank, [&](Sm90Place at) {
      multiply(d, state);
      finish(d, at);
    });
    if (threadIdx.x % 32 == 0) tile::ptx::bulk_wait_group<0>();
  }
};

template <class T, class Tile>
__global__ void __launch_bounds__(Tile::kThreads, 1)
    gemm_sm90_kernel(const __grid_constant__ Sm90Params p) {
  extern __shared__ __align__(1024) char dynamic[];
  auto& barriers = *reinterpret_cast<Sm90Ring::Barriers*>(dynamic + p.layout.barriers());
  Sm90Ring ring(barriers);
  const bool is_clustered = p.share != Share::none;
  if (threadIdx.x == 0) {
    ring.init(1, Tile::kWarpgroups * (is_clustered ? 2 : 1));
    tile::ptx::prefetch_tensormap(&p.a);
    tile::ptx::prefetch_tensormap(&p.b);
  }
  if (is_clustered) {
    tile::ptx::cluster_arrive();
    tile::ptx::cluster_wait();
  } else {
    __syncthreads();
  }
  tile::release_next(Sm90{});
  const int rank = is_clustered ? static_cast<int>(tile::ptx::cluster_rank()) : 0;
  const uint32_t shared = tile::ptx::shared_address(dynamic);
  const int warpgroup = static_cast<int>(threadIdx.x) / 128;
  if (warpgroup == Tile::kWarpgroups) {
    if constexpr (Tile::kMovesRegisters) tile::ptx::setmaxnreg_dec<40>();
    if (threadIdx.x == 128 * Tile::kWarpgroups) Sm90Producer<Tile>{p, ring, shared, rank}.run();
  } else {
    if constexpr (Tile::kMovesRegisters) tile::ptx::setmaxnreg_inc<232>();
    Sm90Consumer<T, Tile>{p, ring, shared, warpgroup}.run(rank);
  }
}

}  // namespace tessera::kernels
