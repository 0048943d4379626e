// Who fills the ring: one thread, by the copy engine.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/gemm/sm90/place.cuh"
#include "tile/arch.cuh"
#include "tile/ptx/tma_tensor.cuh"

namespace tessera::kernels {

// What the producer does for each block of k. One thread feeds the whole block, so every
// instruction counts: an operand comes as one box of all slabs of the stage, unless it is shared.
template <class Tile>
struct Sm90Producer {
  const Sm90Params& p;
  const Sm90Ring& ring;
  uint32_t shared;
  int rank;

  __device__ uint32_t stage_bytes() const {
    return static_cast<uint32_t>(p.layout.a_slot_bytes + p.layout.b_slot_bytes);
  }

  __device__ void load_a(const Sm90Ring::State& state, Sm90Place at, int k_block) const {
    tile::ptx::tensor_load(
        shared + p.layout.a(state.index), &p.a,
        tile::ptx::Coord{0, at.m_tile * Tile::kRows, k_block * Tile::kSlabs, at.batch},
        ring.full(state));
  }
  // Where two blocks share it, each loads half of the rows for both.
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

  // B of the first tile, which nothing writes, while the kernel in front still runs. Returns the
  // number of blocks of k.
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

  // One thread. The first num_early blocks of B are under way.
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
        if (--num_by_hand < 0) load_a(state, at, k_block);
        state.advance(p.layout.num_stages);
      }
    }
    // Now, and not before: the next kernel's first loads fill the time in which this one has none,
    // instead of holding up its own.
    tile::release_next(Sm90{});
    ring.producer_drain(state, p.layout.num_stages);
  }
};

}  // namespace tessera::kernels
