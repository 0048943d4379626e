// Who turns 8-bit values: three warps beside the producer, from the stages that the copy engine
// fills to those that the tensor cores read.
// SPDX-License-Identifier: MIT
//
// A turned tile has a row for every element of a head and in it a byte for every key, so that the
// tensor cores find the keys of one element side by side. Nothing turns bytes; ldmatrix turns pairs
// of them, and two such pairs give, after a shuffle of bytes, four keys of one element. Two orders
// come out of that, and both are left as they are:
//   keys, in each 16: 0 1 8 9, 2 3 10 11, ... which is just how the weights lie in registers;
//   elements, in each 16: 0 2 .. 14, 1 3 .. 15. Columns of results lie so, until they are stored.
#pragma once

#include "kernels/attention/sm90/work.cuh"
#include "tile/descriptor.cuh"
#include "tile/fragment.cuh"
#include "tile/ptx/barrier.cuh"
#include "tile/ptx/ldmatrix.cuh"
#include "tile/ptx/shared.cuh"
#include "tile/ptx/stmatrix.cuh"
#include "tile/swizzle.cuh"

namespace tessera::kernels {

template <class T, class Tile>
struct PrefillTurner {
  static constexpr int kWarps = 3;
  static constexpr int kBarrier = 15;

  const Sm90PrefillParams& p;
  PrefillShared<T, Tile>& shared;
  PrefillRings<T, Tile>& rings;
  int warp;  // of the three
  int lane;
  tile::PipelineState<kWorkSlots> work_state = {};
  tile::PipelineState<Tile::kStages> state = {};

  // Parts are 16 keys of 32 elements. A warp takes every third row of parts and a few of its parts
  // at once, so that they do not wait for each other. Where a lane's bytes lie is worked out once:
  // from there, other keys are whole rows away and other elements are chunks, told by some bits.
  static constexpr int kKeyParts = Tile::kKeys / 16;
  static constexpr int kElementParts = Tile::kValueDim / 32;
  static constexpr int kAtOnce = kElementParts < 4 ? kElementParts : 4;
  static constexpr int kPartsOfSlab = kSlabBytes / 32;

  __device__ uint32_t source_of_lane() const {
    const tile::MatrixRow at = tile::matrix_row_16x32(lane);
    return tile::swizzled(tile::Swizzle::b128,
                          static_cast<uint32_t>(at.row * kSlabBytes + at.byte));
  }
  // Of the element's part; `lane_source` is where its first one lies.
  static __device__ __forceinline__ uint32_t source(uint32_t lane_source, int element_part) {
    return (lane_source ^ (32 * (element_part % kPartsOfSlab))) +
           element_part / kPartsOfSlab * Tile::kKeys * kSlabBytes;
  }

  __device__ __forceinline__ void turn_parts(uint32_t from, uint32_t to) const {
    const uint32_t lane_target =
        tile::swizzled(tile::Swizzle::b128, static_cast<uint32_t>(lane * kSlabBytes));
    from += source_of_lane();
#pragma unroll 1
    for (int part = warp; part < kKeyParts; part += kWarps) {
      const uint32_t lane_source = from + part * 16 * kSlabBytes;
      const uint32_t target = to + part / 8 * Tile::kValueDim * kSlabBytes +
                              (lane_target ^ static_cast<uint32_t>(part % 8 * 16));
      TESSERA_UNROLL
      for (int first = 0; first < kElementParts; first += kAtOnce) {
        uint32_t pairs[kAtOnce][4];
        TESSERA_UNROLL
        for (int i = 0; i < kAtOnce; ++i) {
          tile::ptx::ldmatrix_trans(pairs[i], source(lane_source, first + i));
        }
        TESSERA_UNROLL
        for (int i = 0; i < kAtOnce; ++i) {
          const uint32_t words[4] = {__byte_perm(pairs[i][0], pairs[i][1], 0x6420),
                                     __byte_perm(pairs[i][0], pairs[i][1], 0x7531),
                                     __byte_perm(pairs[i][2], pairs[i][3], 0x6420),
                                     __byte_perm(pairs[i][2], pairs[i][3], 0x7531)};
          tile::ptx::stmatrix(target + (first + i) * 32 * kSlabBytes, words);
        }
      }
    }
  }

  // Keys nobody sees may hold anything, and zero times NaN is not zero.
  __device__ void clear_unseen(const PrefillWork& work, int block, uint32_t from) const {
    const KeyRange any[2] = {{work.any_begin[0], work.any_end[0]},
                             {work.any_begin[1], work.any_end[1]}};
    const uint32_t lane_source = from + source_of_lane();
    for (int part = warp; part < kKeyParts; part += kWarps) {
      const int key = block * Tile::kKeys + 16 * part + lane % 16;
      if (any[0].has(key) || any[1].has(key)) continue;
      for (int element_part = 0; element_part < kElementParts; ++element_part) {
        tile::ptx::store_shared(source(lane_source + part * 16 * kSlabBytes, element_part),
                                uint4{0, 0, 0, 0});
      }
    }
    __syncwarp();
  }

  __device__ __forceinline__ void turn(const PrefillWork& work, int block, bool is_full) {
    rings.v.consumer_wait(state);
    const uint32_t from = tile::ptx::shared_address(shared.v[state.index]);
    if (p.zeroes_v && !is_full) clear_unseen(work, block, from);
    rings.turned.producer_acquire(state);
    turn_parts(from, tile::ptx::shared_address(shared.turned[state.index]));
    tile::ptx::fence_proxy_async_shared();
    tile::ptx::bar_sync(kBarrier, 32 * kWarps);
    if (warp == 0 && lane == 0) {
      rings.turned.producer_commit(state);
      rings.v.consumer_release(state);
    }
    state.advance();
  }

  __device__ void run() {
    while (true) {
      rings.work.consumer_wait(work_state);
      const PrefillWork& work = shared.works[work_state.index];
      if (work.head < 0) return;
      const BlockRanges& blocks = work.blocks;
      for (int block = blocks.first(); block >= 0; block = blocks.before(block)) {
        turn(work, block, blocks.is_full(block));
      }
      tile::ptx::bar_sync(kBarrier, 32 * kWarps);
      if (warp == 0 && lane == 0) rings.work.consumer_release(work_state);
      work_state.advance();
    }
  }
};

}  // namespace tessera::kernels
