// The matrix product on Hopper, for every m.
// SPDX-License-Identifier: MIT
//
//   D = epilogue(A[m, k] . B[n, k]^T)        16-bit operands, or 8-bit codes with their scales
//
// Work      Persistent blocks walk tiles of 64 or 128 rows by up to 256 columns, in an order that
//           lets blocks in flight find each other's operands in L2. In a cluster of two, each block
//           loads half of the B they share and multicasts it.
// Pipeline  One producer thread fills a ring of stages with slabs of A and B by TMA. One or two
//           consumer warpgroups run wgmma from the ring, each holding 64 rows of the tile in
//           registers. With a static B its first stages are loaded before the kernel in front has
//           finished; for few rows the consumers then load A's first stages themselves. A single
//           row may be normalised on the way: every block then makes all of A and keeps it.
// Output    k is summed from the front in steps of 32 bytes into one accumulator, whatever the
//           tile: a row of A gives the same bits in any m, and the choice of tile is free. Sums of
//           int8 are exact. Scales of whole rows are applied to the finished sums. Tiles that
//           promote sum 128 elements at a time and add each sum, times its scales, in float: for
//           scales of blocks, and for FP8 whose sums must be floats. Results are rounded once and
//           stored by TMA while the next tile is multiplied, or straight from registers. Tiles that
//           split k between two blocks give other bits and are used only where
//           Context::batch_invariant is off.
// Cost      2 m n k flop; m k + n k elements in, m n out. Up to 64 rows reading B is the limit,
//           above the tensor cores are. docs/kernels/gemm.md, docs/kernels/gemm_8bit.md
// Needs     Rows of A and B of a multiple of 128 bytes, that start at multiples of 16 bytes.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/gemm/epilogue.cuh"
#include "kernels/gemm/normed_row.cuh"
#include "kernels/gemm/sm90/fold.cuh"
#include "kernels/gemm/sm90/params.cuh"
#include "kernels/gemm/sm90/plan.h"
#include "kernels/gemm/sm90/tile_scales.cuh"
#include "kernels/launch.h"
#include "tile/arch.cuh"
#include "tile/descriptor.cuh"
#include "tile/fragment.cuh"
#include "tile/pipeline.cuh"
#include "tile/ptx/barrier.cuh"
#include "tile/ptx/cluster.cuh"
#include "tile/ptx/ld_global.cuh"
#include "tile/ptx/mbarrier.cuh"
#include "tile/ptx/shared.cuh"
#include "tile/ptx/stmatrix.cuh"
#include "tile/ptx/tma_tensor.cuh"
#include "tile/ptx/warp.cuh"
#include "tile/ptx/wgmma.cuh"
#include "tile/swizzle.cuh"
#include "tile/tensor_map.h"
#include "tile/unroll.cuh"

namespace tessera::kernels {

// Fills the ring. One thread feeds the whole block, so its instructions count: an operand comes as
// one TMA box with all slabs of the stage, unless it is multicast.
template <class Tile>
struct Sm90Producer {
  const Sm90Params& p;
  const Sm90Ring& ring;
  uint32_t shared;
  int rank;

  __device__ uint32_t stage_bytes() const {
    return static_cast<uint32_t>((p.keeps_a ? 0 : p.layout.a_slot_bytes) + p.layout.b_slot_bytes);
  }

  __device__ void load_a(const Sm90Ring::State& state, Sm90Place at, int k_block) const {
    tile::ptx::tensor_load(
        shared + p.layout.a(state.index), &p.a,
        tile::ptx::Coord{0, at.m_tile * Tile::kRows, k_block * Tile::kSlabs, at.batch},
        ring.full(state));
  }
  // If two blocks share B, each loads half of the rows for both.
  __device__ void load_b(const Sm90Ring::State& state, Sm90Place at, int k_block) const {
    const uint32_t slot = shared + p.layout.b(state.index);
    const int row = at.n_tile * Tile::kCols;
    const int batch = p.is_b_batched ? at.batch : 0;
    if (!p.shares_b) {
      tile::ptx::tensor_load(slot, &p.b, tile::ptx::Coord{0, row, k_block * Tile::kSlabs, batch},
                             ring.full(state));
      return;
    }
    const int half = rank * (Tile::kCols / 2);
    TESSERA_UNROLL
    for (int slab = 0; slab < Tile::kSlabs; ++slab) {
      tile::ptx::tensor_load_multicast(
          slot + (slab * Tile::kCols + half) * kSlabBytes, &p.b,
          tile::ptx::Coord{0, row + half, k_block * Tile::kSlabs + slab, batch}, ring.full(state),
          uint16_t{3});
    }
  }

  // Loads the first stages of a static B while the kernel in front still runs. Returns how many.
  __device__ int start_early() const {
    const int index = tiles_of(p).first;
    if (p.num_early == 0 || index >= p.num_tiles) return 0;
    const Sm90Range range = k_range<Tile>(p, rank);
    const int num_early = min(p.num_early, range.end - range.begin);
    const Sm90Place first = place_of(p, index, rank);
    Sm90Ring::State state;
    for (int i = 0; i < num_early; ++i) {
      const bool is_by_hand = i < p.num_by_hand;
      ring.producer_expect(state, is_by_hand ? p.layout.b_slot_bytes : stage_bytes());
      load_b(state, first, range.begin + i);
      state.advance(p.layout.num_stages);
    }
    return num_early;
  }

  // The whole walk. B of the first num_early stages is already in flight.
  __device__ void run(int num_early) const {
    tile::wait_for_previous(Sm90{});
    Sm90Ring::State state;
    const Sm90Tiles tiles = tiles_of(p);
    int num_by_hand = num_early > 0 ? p.num_by_hand : 0;
    const Sm90Range range = k_range<Tile>(p, rank);
    for (int i = tiles.first; i < p.num_tiles; i += tiles.step) {
      const Sm90Place at = place_of(p, i, rank);
      for (int k_block = range.begin; k_block < range.end; ++k_block) {
        if (num_early > 0) {
          --num_early;
        } else {
          ring.producer_acquire(state);
          ring.producer_expect(state, stage_bytes());
          load_b(state, at, k_block);
        }
        if (--num_by_hand < 0 && !p.keeps_a) load_a(state, at, k_block);
        state.advance(p.layout.num_stages);
      }
    }
    // Released only now: the next kernel's first loads then run while this kernel has none, instead
    // of competing with it.
    tile::release_next(Sm90{});
    ring.producer_drain(state, p.layout.num_stages);
  }
};

// Loads A of the first stages by the consumers' own loads, without TMA. With few rows the time is
// that of reading B plus the latency of the first A. B's first stages arrive while the kernel in
// front ends; TMA serves requests in order, so A would queue behind them. A plain load overtakes.
template <class Tile>
class Sm90FirstA {
 public:
  // Computes the addresses, while the kernel in front may still run.
  __device__ Sm90FirstA(const Sm90Params& p, int batch, uint32_t shared) {
    const int num_rows = p.epilogue.m;
    TESSERA_UNROLL
    for (int i = 0; i < kFirstAPieces; ++i) {
      const int piece = static_cast<int>(threadIdx.x) + i * 128;
      const int row = piece / 8 % num_rows;
      const int slab = piece / 8 / num_rows;
      const int stage = slab / Tile::kSlabs;
      is_mine_[i] = stage < p.num_by_hand;
      is_there_[i] = is_mine_[i] && slab < p.num_slabs;  // the last stage may end beyond k
      source_[i] = p.a_data + batch * p.a_batch_bytes + row * p.a_row_bytes + slab * kSlabBytes +
                   piece % 8 * 16;
      destination_[i] = shared + p.layout.a(stage) + slab % Tile::kSlabs * p.a_rows * kSlabBytes +
                        tile::swizzled(tile::Swizzle::b128, row * kSlabBytes + piece % 8 * 16);
    }
  }

  // Copies the pieces and waits for the other consumers, so that wgmma may read all of them.
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

// What the tensor cores add up in: integers for int8, floats for all others.
template <class In>
using Sm90Sum = std::conditional_t<std::is_integral_v<In>, int32_t, float>;
// The type of B beside an A of type In: unsigned codes multiply signed ones.
template <class In>
using Sm90Weight = std::conditional_t<std::is_integral_v<In>, int8_t, In>;

// Multiplies from the ring, applies the epilogue and stores. In is the type of the operands, T that
// of bias, residual and 16-bit results.
template <class In, class T, class Tile>
struct Sm90Consumer {
  using Sum = Sm90Sum<In>;
  static constexpr int kRegs = Tile::kCols / 2;
  static constexpr tile::Swizzle kSwizzle = tile::Swizzle::b128;

  // A warp's rows of a finished tile, rounded to 16 bits. They take half the registers of the sums
  // and wait there to be stored while the next tile is multiplied.
  struct Pending {
    uint32_t packed[kRegs / 2];
    BlockPlace at;  // the warp's first row and the first column of the results
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

  // One block of k. On return its products are in flight and those of the block before are done.
  template <bool kIsFirst>
  __device__ void multiply_block(Sum (&d)[kRegs], Sm90Ring::State& state, Sm90Ring::State& previous,
                                 int k_block) const {
    issue_block<kIsFirst>(d, state, k_block);
    tile::ptx::wgmma_wait_group<1>();
    if (!kIsFirst) release(previous);
    previous = state;
    state.advance(p.layout.num_stages);
  }

  // Of the turns of two warpgroups: the first one's, then the other's.
  static constexpr int kTurnBarrier = 2;

  // Waits for one block of k, and for the warpgroup's turn if there are turns, and starts its
  // products. kIsFirst: they overwrite d.
  template <bool kIsFirst>
  __device__ void issue_block(Sum (&d)[kRegs], const Sm90Ring::State& state, int k_block) const {
    const uint64_t first_a = tile::k_major_descriptor<kSwizzle>(
        shared + p.layout.a(0) + 64 * warpgroup * kSlabBytes, 64);
    const uint64_t first_b =
        tile::k_major_descriptor<kSwizzle>(shared + p.layout.b(0), Tile::kCols);
    const bool keeps_a = Tile::kWarpgroups == 1 && p.keeps_a;
    const uint64_t a =
        tile::advance(first_a, (keeps_a ? k_block : state.index) * p.layout.a_slot_bytes);
    const uint64_t b = tile::advance(first_b, state.index * p.layout.b_slot_bytes);
    ring.consumer_wait(state);
    if constexpr (Tile::kTakesTurns) tile::ptx::bar_sync(kTurnBarrier + warpgroup, 256);
    tile::ptx::wgmma_fence();
    TESSERA_UNROLL
    for (int step = 0; step < 4 * Tile::kSlabs; ++step) {
      const int slab = step / 4;
      const uint64_t a_step = tile::advance(a, slab * p.a_rows * kSlabBytes + 32 * (step % 4));
      const uint64_t b_step = tile::advance(b, slab * Tile::kCols * kSlabBytes + 32 * (step % 4));
      if (kIsFirst && step == 0) {
        tile::ptx::wgmma_ss_first<In, Sm90Weight<In>>(d, a_step, b_step);
      } else {
        tile::ptx::wgmma_ss<In, Sm90Weight<In>>(d, a_step, b_step, true);
      }
    }
    tile::ptx::wgmma_commit_group();
    if constexpr (Tile::kTakesTurns) pass_turn();
  }
  __device__ void pass_turn() const { tile::ptx::bar_arrive(kTurnBarrier + (warpgroup ^ 1), 256); }

  // Scales are loaded so many blocks of k ahead. With few rows a block takes less time than a load
  // behind the weights that are in flight.
  static constexpr int kScalesAhead = Tile::kWarpgroups == 1 ? 2 : 0;
  using Scales = TileScales<Tile>;
  using FactorsOf4 = typename Scales::Factors[4];  // by block of k, modulo 4

  __device__ Scales scales_of(Sm90Place at) const {
    return {p.scales, p.epilogue.m, p.epilogue.n, at.n_tile, block_place(at)};
  }

  // Four blocks of k of a tile that promotes, or one. A block is added to the sums while the next
  // one is multiplied; all products are complete on return.
  template <int kCount>
  __device__ __forceinline__ void promote_blocks(float (&sums)[kRegs], Sm90Ring::State& state,
                                                 int k_block, FactorsOf4& factors,
                                                 const Scales& scales) const {
    constexpr int kAhead = kCount == 4 ? kScalesAhead : 0;
    Sum part[2][kRegs];
    Sm90Ring::State previous = state;
    TESSERA_UNROLL
    for (int i = 0; i < kCount; ++i) {
      issue_block<true>(part[i % 2], state, k_block + i);
      const int ahead = min(k_block + i + kAhead, p.num_k_blocks - 1);
      factors[(i + kAhead) % 4] = scales.load(ahead);
      if (i > 0) {
        tile::ptx::wgmma_wait_group<1>();
        tile::ptx::wgmma_hold(part[(i - 1) % 2]);
        release(previous);
        scales.add(sums, part[(i - 1) % 2], factors[i - 1], k_block + i - 1);
      }
      previous = state;
      state.advance(p.layout.num_stages);
    }
    constexpr int kLast = kCount - 1;
    tile::ptx::wgmma_wait_group<0>();
    tile::ptx::wgmma_hold(part[kLast % 2]);
    release(previous);
    scales.add(sums, part[kLast % 2], factors[kLast], k_block + kLast);
  }

  // The same with one set of registers for the products of a block, as wide tiles have no more. The
  // two warpgroups take turns: one multiplies while the other adds. `factors` are the block's;
  // those of the next one take their place.
  __device__ __forceinline__ void promote_in_turns(float (&sums)[kRegs], Sm90Ring::State& state,
                                                   int k_block, typename Scales::Factors& factors,
                                                   const Scales& scales) const {
    Sum part[kRegs];
    issue_block<true>(part, state, k_block);
    const auto next = scales.load(min(k_block + 1, p.num_k_blocks - 1));
    tile::ptx::wgmma_wait_group<0>();
    tile::ptx::wgmma_hold(part);
    release(state);
    state.advance(p.layout.num_stages);
    scales.add(sums, part, factors, k_block);
    factors = next;
  }

  // One tile that promotes.
  __device__ void multiply_promoted(float (&sums)[kRegs], Sm90Ring::State& state, int num_blocks,
                                    Sm90Place at) const {
    const Scales scales = scales_of(at);
    TESSERA_UNROLL
    for (int i = 0; i < kRegs; ++i) sums[i] = 0;
    if constexpr (Tile::kTakesTurns) {
      auto factors = scales.load(0);
      for (int k_block = 0; k_block < num_blocks; ++k_block) {
        promote_in_turns(sums, state, k_block, factors, scales);
      }
    } else {
      FactorsOf4 factors;
      TESSERA_UNROLL
      for (int i = 0; i < kScalesAhead; ++i) {
        factors[i] = scales.load(min(i, p.num_k_blocks - 1));
      }
      int k_block = 0;
      for (; k_block + 4 <= num_blocks; k_block += 4) {
        promote_blocks<4>(sums, state, k_block, factors, scales);
      }
      for (; k_block < num_blocks; ++k_block) {
        promote_blocks<1>(sums, state, k_block, factors, scales);
      }
    }
  }

  // One tile. The previous tile is stored meanwhile, one box per block of k.
  __device__ void multiply(Sum (&d)[kRegs], Sm90Ring::State& state, int num_blocks,
                           const Pending& pending) const {
    Sm90Ring::State previous = state;
    multiply_block<true>(d, state, previous, 0);
    int k_block = 1;
    if constexpr (Tile::kStages) {
      if (pending.is_there) {
        TESSERA_UNROLL
        for (int box = 0; box < Boxes<Tile::kCols>::kCount; ++box) {
          store_box(pending, box);
          if (k_block < num_blocks) multiply_block<false>(d, state, previous, k_block);
          ++k_block;
        }
      }
    }
    for (; k_block < num_blocks; ++k_block) multiply_block<false>(d, state, previous, k_block);
    tile::ptx::wgmma_wait_group<0>();
    tile::ptx::wgmma_hold(d);
    release(previous);
  }

  // How a row of results is cut into boxes for TMA.
  template <int kOutCols>
  struct Boxes {
    static constexpr int kCols = store_box_cols(kOutCols);
    static constexpr int kCount = kOutCols / kCols;
    static constexpr tile::Swizzle kSwizzle = tile::swizzle_of_span(2 * kCols);
  };

  // Stores 16 rows by one box of columns through shared memory. kOutCols: columns of the results,
  // half the tile's if the product is gated.
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

  __device__ void store_pending(const Pending& pending) const {
    if constexpr (Tile::kStages) {
      if (!pending.is_there) return;
      TESSERA_UNROLL
      for (int box = 0; box < Boxes<Tile::kCols>::kCount; ++box) store_box(pending, box);
    }
  }

  // Stores the columns whose partial sums this block has added up.
  __device__ void finish_part(float (&d)[kRegs / Tile::kSplits], Sm90Place at, int rank) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const BlockPlace place{
        at.m_tile * Tile::kRows + static_cast<int>(threadIdx.x) / 32 * 16 + lane / 4,
        at.n_tile * Tile::kCols + rank * (Tile::kCols / Tile::kSplits) + 2 * (lane % 4), at.batch};
    if (!p.epilogue.is_plain) transform<T>(d, p.epilogue, place);
    store_direct<T>(d, p.epilogue, place);
  }

  // Prefetches the tile's part of the residual into L2 while the tile is multiplied.
  __device__ void prefetch_residual(Sm90Place at) const {
    constexpr int kLine = 64;  // elements in 128 bytes
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

  // The first of the warp's 16 rows of a tile, and the place of the lane's results in it.
  __device__ int warp_row(Sm90Place at) const {
    return at.m_tile * Tile::kRows + 64 * warpgroup + static_cast<int>(threadIdx.x) % 128 / 32 * 16;
  }
  __device__ BlockPlace block_place(Sm90Place at) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    return {warp_row(at) + lane / 4, at.n_tile * Tile::kCols + 2 * (lane % 4), at.batch};
  }

  // Few rows: the epilogue's operands are loaded before the product. Those of many rows would not
  // fit into registers, and there the wait is a small part.
  static constexpr bool kHolds = Tile::kWarpgroups == 1;
  using Operands = std::conditional_t<kHolds, HeldOperands<T, !std::is_same_v<In, T>, kRegs>,
                                      OperandsInMemory<T>>;

  // Stores the results at once, or rounds them to be stored during the next tile.
  __device__ void finish(float (&d)[kRegs], Sm90Place at, const Operands& operands,
                         Pending& pending) const {
    const int row = warp_row(at);
    const int col = at.n_tile * Tile::kCols;
    const bool is_stored = row < p.epilogue.m && col < p.epilogue.n;
    const BlockPlace place = block_place(at);
    if (is_stored && !p.epilogue.is_plain) transform<T>(d, p.epilogue, place, operands);
    pending.is_there = Tile::kStages && is_stored && p.layout.store_bytes > 0;
    pending.at = {row, p.epilogue.is_gated ? col / 2 : col, at.batch};
    if constexpr (Tile::kStages) {
      // Written on every path, so that the previous tile's registers are dead on all of them.
      TESSERA_UNROLL
      for (int i = 0; i < kRegs / 2; ++i) {
        pending.packed[i] = tile::pack_pair<T>(d[2 * i], d[2 * i + 1]);
      }
    }
    if (is_stored && !pending.is_there) store_direct<T>(d, p.epilogue, place);
  }

  // Normalises A's one row, and puts it where wgmma reads the first of eight.
  __device__ void make_a() const {
    if constexpr (!std::is_unsigned_v<In>) {
      const auto put = [&](int v, const auto& vec) {
        const int byte = v * static_cast<int>(sizeof(vec)), slab = byte / kSlabBytes;
        store_vec(shared + p.layout.a(slab / Tile::kSlabs) +
                      slab % Tile::kSlabs * p.a_rows * kSlabBytes + byte % kSlabBytes,
                  vec);
      };
      const bool is_early = p.num_early > 0;
      normalize_by_warpgroup<T, In>(p.normed, shared + p.layout.reductions(), is_early, put);
    }
  }

  __device__ void run(int rank) const {
    const Sm90Tiles tiles = tiles_of(p);
    Sm90Ring::State state;
    if constexpr (Tile::kWarpgroups == 1) {
      if (p.keeps_a) {
        make_a();
      } else {
        const Sm90FirstA<Tile> first(p, place_of(p, tiles.first, rank).batch, shared);
        tile::wait_for_previous(Sm90{});
        if (p.num_by_hand > 0) first.load();
      }
    } else {
      tile::wait_for_previous(Sm90{});
    }
    const Sm90Range range = k_range<Tile>(p, rank);
    if constexpr (Tile::kTakesTurns) {
      if (warpgroup == 1) pass_turn();  // the first one is the other's
    }
    Pending pending;
    pending.is_there = false;
    if constexpr (Tile::kSplits == 1) {
      for (int i = tiles.first; i < p.num_tiles; i += tiles.step) {
        const Sm90Place at = place_of(p, i, rank);
        Operands operands;
        if constexpr (kHolds) {
          operands.load(p.epilogue, block_place(at));
        } else if (p.epilogue.residual != nullptr) {
          prefetch_residual(at);
        }
        // The sums are declared here: between tiles their registers hold `pending`.
        float d[kRegs];
        if constexpr (Tile::kPromotes) {
          multiply_promoted(d, state, range.end - range.begin, at);
        } else if constexpr (std::is_same_v<Sum, float>) {
          multiply(d, state, range.end - range.begin, pending);
        } else {
          Sum sums[kRegs];
          multiply(sums, state, range.end - range.begin, pending);
          if constexpr (std::is_unsigned_v<In>) {
            subtract_zero_points(sums, p.epilogue, block_place(at));
          }
          TESSERA_UNROLL
          for (int j = 0; j < kRegs; ++j) d[j] = static_cast<float>(sums[j]);
          tile::ptx::wgmma_hold(d);  // converted in place, before the epilogue branches
        }
        if constexpr (Tile::kPromotes) {  // the next tile needs the registers
          Pending finished;
          finish(d, at, operands, finished);
          store_pending(finished);
        } else {
          finish(d, at, operands, pending);
        }
      }
      if constexpr (!Tile::kPromotes) store_pending(pending);
      if (threadIdx.x % 32 == 0) tile::ptx::bulk_wait_group<0>();
    } else {  // one tile: a loop would keep `d` alive during the fold
      if (p.epilogue.residual != nullptr) prefetch_residual(place_of(p, tiles.first, rank));
      float d[kRegs];
      multiply(d, state, range.end - range.begin, pending);
      float part[kRegs / Tile::kSplits];
      fold_splits<Tile>(d, part, shared + p.layout.a(0), rank);
      finish_part(part, place_of(p, tiles.first, rank), rank);
    }
  }
};

template <class In, class T, class Tile>
__global__ void __launch_bounds__(Tile::kThreads, 1)
    gemm_sm90_kernel(const __grid_constant__ Sm90Params p) {
  extern __shared__ __align__(1024) char dynamic[];
  const uint32_t shared = tile::ptx::shared_address(dynamic);
  Sm90Ring ring(*reinterpret_cast<Sm90Ring::Barriers*>(dynamic + p.layout.barriers()));
  const int rank = p.cluster > 1 ? static_cast<int>(tile::ptx::cluster_rank()) : 0;
  // The shuffle tells the compiler that the value is the same in all lanes, so it keeps descriptors
  // that depend on it in uniform registers, where wgmma needs them.
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0);
  const Sm90Producer<Tile> producer{p, ring, shared, rank};
  int num_early = 0;
  if (warp == 4 * Tile::kWarpgroups) {
    ring.init_by_warp(1, Tile::kWarpgroups * (p.shares_b ? 2 : 1), p.layout.num_stages);
    __syncwarp();
    // Without a partner that writes into this block's memory, loading may start at once.
    if (!p.shares_b && threadIdx.x % 32 == 0) num_early = producer.start_early();
  }
  if (p.shares_b) {
    tile::ptx::cluster_arrive();
    tile::ptx::cluster_wait();
  } else {
    __syncthreads();
  }
  if (warp >= 4 * Tile::kWarpgroups) {
    if constexpr (Tile::kMovesRegisters) tile::ptx::setmaxnreg_dec<40>();
    if (threadIdx.x == 128 * Tile::kWarpgroups) {
      if (p.shares_b) num_early = producer.start_early();
      producer.run(num_early);
    }
  } else {
    if constexpr (Tile::kMovesRegisters) tile::ptx::setmaxnreg_inc<232>();
    Sm90Consumer<In, T, Tile>{p, ring, shared, warp / 4}.run(rank);
  }
}

// An operand [batch, rows, k] as slabs of 128 bytes of k, with coordinates (in slab, row, slab,
// batch). k must be a multiple of a slab: an incomplete one would run into the next row.
inline CUtensorMap operand_map(const TensorView& t, int box_rows, int box_slabs) {
  const bool is_batched = t.rank == 3;
  const int slab = kSlabBytes * 8 / bit_width(t.dtype);
  return tile::make_tensor_map(
      {.data = t.data,
       .dtype = t.dtype,
       .rank = 4,
       .dims = {slab, t.size(-2), t.size(-1) / slab, is_batched ? t.size(0) : 1},
       .strides = {1, t.stride(-2), slab, is_batched ? t.stride(0) : t.stride(-2)},
       .box = {slab, box_rows, box_slabs, 1},
       .swizzle = tile::Swizzle::b128});
}

// out [batch, m, columns], stored in boxes of 16 rows.
inline CUtensorMap out_map(const TensorView& t, int box_cols) {
  const bool is_batched = t.rank == 3;
  return tile::make_tensor_map(
      {.data = t.data,
       .dtype = t.dtype,
       .rank = 3,
       .dims = {t.size(-1), t.size(-2), is_batched ? t.size(0) : 1},
       .strides = {1, t.stride(-2), is_batched ? t.stride(0) : t.stride(-2)},
       .box = {box_cols, 16, 1},
       .swizzle = tile::swizzle_of_span(2 * box_cols)});
}

template <class In, class T, class Tile>
void launch_plan(const GemmArgs& args, const RmsNormArgs* norm, const Sm90Plan& plan,
                 const Context& ctx) {
  Sm90Params p{};
  p.a = operand_map(args.a, plan.a_rows, Tile::kSlabs);
  p.b = plan.shares_b ? operand_map(args.b.values, Tile::kCols / 2, 1)
                      : operand_map(args.b.values, Tile::kCols, Tile::kSlabs);
  if (plan.layout.store_bytes > 0) {
    p.out = out_map(args.out, store_box_cols(args.is_gated ? Tile::kCols / 2 : Tile::kCols));
  }
  p.epilogue = epilogue_params(args);
  p.layout = plan.layout;
  const int64_t slab = kSlabBytes / static_cast<int>(sizeof(In));
  p.num_k_blocks = static_cast<int>(divide_up(args.a.size(-1), slab * Tile::kSlabs));
  p.scales = block_scales(args);
  p.num_m_tiles = plan.num_m_tiles;
  p.num_n_tiles = plan.num_n_tiles;
  p.num_tiles = plan.num_tiles;
  p.group = plan.group;
  p.a_rows = plan.a_rows;
  p.cluster = plan.cluster;
  p.shares_b = plan.shares_b;
  p.is_b_batched = args.b.values.rank == 3;
  p.normed = normed_params(norm);
  p.keeps_a = p.normed.is_given;
  p.num_early = args.b.is_static ? std::min(plan.num_early, p.num_k_blocks) : 0;
  p.num_by_hand = std::min(plan.num_by_hand, p.num_early);
  p.num_slabs = static_cast<int>(args.a.size(-1) / slab);
  p.a_data = static_cast<const char*>(args.a.data);
  p.a_row_bytes = args.a.stride(-2) * static_cast<int64_t>(sizeof(In));
  p.a_batch_bytes = args.a.rank == 3 ? args.a.stride(0) * static_cast<int64_t>(sizeof(In)) : 0;
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(plan.num_blocks)),
                          .block = dim3(Tile::kThreads),
                          .shared_bytes = static_cast<size_t>(plan.layout.size()),
                          .cluster = static_cast<unsigned>(plan.cluster),
                          .overlaps_previous = true};
  launch(&gemm_sm90_kernel<In, T, Tile>, shape, p, ctx);
}

// Launches the tile of the list that has the plan's shape.
template <class In, class T, class... Tiles>
void launch_listed(Sm90TileList<Tiles...>, const GemmArgs& args, const Sm90Plan& plan,
                   const Context& ctx, const RmsNormArgs* norm = nullptr) {
  const auto matches = [&]<class Tile>() {
    if (plan.shape != shape_of<Tile>()) return false;
    launch_plan<In, T, Tile>(args, norm, plan, ctx);
    return true;
  };
  const bool is_found = (matches.template operator()<Tiles>() || ...);
  expects(is_found, "gemm: the plan names a tile that is not compiled");
}

template <class T>
void launch_one_warpgroup(const GemmArgs& args, const RmsNormArgs* norm, const Sm90Plan& plan,
                          const Context& ctx) {
  launch_listed<T, T>(Sm90Tiles1{}, args, plan, ctx, norm);
}
template <class T>
void launch_two_warpgroups(const GemmArgs& args, const Sm90Plan& plan, const Context& ctx) {
  launch_listed<T, T>(Sm90Tiles2{}, args, plan, ctx);
}
template <class T>
void launch_split(const GemmArgs& args, const Sm90Plan& plan, const Context& ctx) {
  launch_listed<T, T>(Sm90TilesSplit{}, args, plan, ctx);
}
template <class In, class T>
void launch_codes_1(const GemmArgs& args, const RmsNormArgs* norm, const Sm90Plan& plan,
                    const Context& ctx) {
  launch_listed<In, T>(Sm90TilesCodes1{}, args, plan, ctx, norm);
}
template <class In, class T>
void launch_codes_2(const GemmArgs& args, const Sm90Plan& plan, const Context& ctx) {
  using Tiles = std::conditional_t<std::is_integral_v<In>, Sm90TilesInt8, Sm90TilesFp8>;
  launch_listed<In, T>(Tiles{}, args, plan, ctx);
}
template <class T>
void launch_unsigned(const GemmArgs& args, const Sm90Plan& plan, const Context& ctx) {
  launch_listed<uint8_t, T>(Sm90TilesUnsigned{}, args, plan, ctx);
}
template <class In, class T>
void launch_promoted(const GemmArgs& args, const Sm90Plan& plan, const Context& ctx) {
  launch_listed<In, T>(Sm90TilesPromoted{}, args, plan, ctx);
}

}  // namespace tessera::kernels
