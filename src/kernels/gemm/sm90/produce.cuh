// Who fills the ring: one thread, by the copy engine.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/gemm/sm90/place.cuh"
#include "tile/arch.cuh"
#include "tile/ptx/tma_tensor.cuh"

namespace tessera::kernels {

// What the producer does for each block of k. One thread feeds the whole block, so it counts every
// instruction: an operand that is not shared comes as one box of all slabs of the stage.
template <class Tile>
struct Sm90Producer {
  const Sm90Params& p;
  const Sm90Ring& ring;
  uint32_t shared;
  int rank;

  __device__ uint32_t stage_bytes() const {
    return static_cast<uint32_t>(p.layout.a_slot_bytes + p.layout.b_slot_bytes);
  }

  // `rows` rows of an operand from `row` on. Of a shared operand each block of the cluster loads
  // half of the rows, for both.
  __device__ void load(const CUtensorMap& map, uint32_t slot, int rows, int k_block, int row,
                       int batch, bool is_shared, uint32_t full) const {
    if (is_shared) {
      const int half = rank * (rows / 2);
      TESSERA_UNROLL
      for (int slab = 0; slab < Tile::kSlabs; ++slab) {
        tile::ptx::tensor_load_multicast(
            slot + (slab * rows + half) * kSlabBytes, &map,
            tile::ptx::Coord{0, row + half, k_block * Tile::kSlabs + slab, batch}, full,
            uint16_t{3});
      }
    } else {
      tile::ptx::tensor_load(slot, &map, tile::ptx::Coord{0, row, k_block * Tile::kSlabs, batch},
                             full);
    }
  }
  __device__ void load_a(const Sm90Ring::State& state, Sm90Place at, int k_block) const {
    load(p.a, shared + p.layout.a(state.index), p.a_rows, k_block, at.m_tile * Tile::kRows,
         at.batch, p.share == Share::a, ring.full(state));
  }
  __device__ void load_b(const Sm90Ring::State& state, Sm90Place at, int k_block) const {
    load(p.b, shared + p.layout.b(state.index), Tile::kCols, k_block, at.n_tile * Tile::kCols,
         p.is_b_batched ? at.batch : 0, p.share == Share::b, ring.full(state));
  }
  // B of the first tile, which nothing writes, while the kernel in front still runs: as many blocks
  // of k as the ring has stages. Returns their number.
  __device__ int start_early() const {
    const int index = tiles_of(p).first;
    if (p.num_early == 0 || index >= p.num_tiles) return 0;
    const int num_early = min(p.num_early, p.num_k_blocks);
    const Sm90Place first = place_of(p, index, rank);
    Sm90Ring::State state;
    for (int k_block = 0; k_block < num_early; ++k_block) {
      ring.producer_expect(state, stage_bytes());
      load_b(state, first, k_block);
      state.advance(p.layout.num_stages);
    }
    return num_early;
  }

  // One thread. The first num_early blocks of B are under way.
  __device__ void run(int num_early) const {
    tile::wait_for_previous(Sm90{});
    Sm90Ring::State state;
    const Sm90Tiles tiles = tiles_of(p);
    for (int i = tiles.first; i < p.num_tiles; i += tiles.step) {
      const Sm90Place at = place_of(p, i, rank);
      for (int k_block = 0; k_block < p.num_k_blocks; ++k_block) {
        if (num_early > 0) {
          --num_early;
        } else {
          ring.producer_acquire(state);
          ring.producer_expect(state, stage_bytes());
          load_b(state, at, k_block);
        }
        load_a(state, at, k_block);
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
