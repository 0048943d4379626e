// Who fills shared memory: one to four warps, by the copy engine, a lane a box.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/attention/sm90/work.cuh"
#include "tile/arch.cuh"
#include "tile/ptx/tma_tensor.cuh"

namespace tessera::kernels {

// What one lane loads of every block of k, or of v: one box, at the same place of each stage. Where
// two warps load, they take turns in the boxes.
template <int kSlabs>
struct LaneBox {
  int slab;
  int key;  // of the block; beyond its last: the lane loads nothing

  __device__ LaneBox(const Sm90PrefillParams& p, int warp, int lane)
      : slab(lane % kSlabs), key((lane / kSlabs * p.num_loaders + warp) * p.box_rows) {}
};

// One warp feeds several warpgroups, so every instruction counts: nothing is divided in its loop.
// It has few registers, and looks up in shared memory what belongs to the tile.
template <class T, class Tile>
struct PrefillProducer {
  using Shared = PrefillShared<T, Tile>;
  static constexpr int kSlabCols = kSlabBytes / static_cast<int>(sizeof(T));
  // Blocks of a tile after which the next tile is prepared: by then the consumers have begun with
  // this one and given back the place of the queries before. With one buffer, when it is loaded.
  static constexpr int kPrepareAfter = Tile::kQueryBuffers == 2 ? Tile::kStages : -1;

  const Sm90PrefillParams& p;
  Shared& shared;
  PrefillRings<T, Tile>& rings;
  int warp;  // of those that load the same blocks
  int lane;
  LaneBox<Shared::kKeySlabs> k_box{p, warp, lane};
  LaneBox<Shared::kValueSlabs> v_box{p, warp, lane};
  tile::PipelineState<Tile::kQueryBuffers> q_state = {};
  tile::PipelineState<Tile::kStages> k_state = {};
  tile::PipelineState<Tile::kStages> v_state = {};
  tile::PipelineState<kWorkSlots> work_state = {};
  int round = 0;

  // Which page holds the keys from `key` on; those nobody sees have none. Without pages, the
  // sequence.
  __device__ int page_of(const int32_t* table, int64_t stride, const PrefillWork& work,
                         int key) const {
    if (p.common.k_page_table == nullptr) return work.kv_batch;
    const KeyRange keys{key, key + p.box_rows};
    const bool is_seen = KeyRange{work.any_begin[0], work.any_end[0]}.meets(keys) ||
                         KeyRange{work.any_begin[1], work.any_end[1]}.meets(keys);
    return is_seen ? table[work.sequence * stride + (key >> p.log2_page_size)] : p.num_pages;
  }
  __device__ int row_of(const PrefillWork& work, int key) const {
    return p.common.k_page_table == nullptr ? work.kv_begin + key : key & (p.common.page_size - 1);
  }

  __device__ void load_q(const PrefillWork& work) {
    rings.q.producer_acquire(q_state);
    if (lane == 0) rings.q.producer_expect(q_state, Shared::kQBytes);
    __syncwarp();
    if (lane < Shared::kKeySlabs) {
      const uint32_t slot = tile::ptx::shared_address(shared.q[q_state.index]);
      const int batch = p.common.q_starts != nullptr ? 0 : work.sequence;
      tile::ptx::tensor_load(
          slot + lane * Tile::kRows * kSlabBytes, &p.q,
          tile::ptx::Coord{lane * kSlabCols, 0, work.q_begin + (work.first_row >> p.log2_packed),
                           work.head, batch},
          rings.q.full(q_state));
    }
    q_state.advance();
  }
  // One block of k or of v. The page is looked up first: the answer is there when a stage is free.
  template <int kSlabs>
  __device__ __forceinline__ void load_block(const tile::Pipeline<Tile::kStages>& ring,
                                             tile::PipelineState<Tile::kStages>& state,
                                             const CUtensorMap& map, uint32_t stage,
                                             const LaneBox<kSlabs>& box, const int32_t* table,
                                             int64_t stride, const PrefillWork& work, int block) {
    const int key = block * Tile::kKeys + box.key;
    const int page = box.key < Tile::kKeys ? page_of(table, stride, work, key) : 0;
    ring.producer_acquire(state);
    if (warp == 0 && lane == 0) ring.producer_expect(state, Tile::kKeys * kSlabs * kSlabBytes);
    __syncwarp();
    if (box.key < Tile::kKeys) {
      tile::ptx::tensor_load(
          stage + (box.slab * Tile::kKeys + box.key) * kSlabBytes, &map,
          tile::ptx::Coord{box.slab * kSlabCols, row_of(work, key), work.kv_head, page},
          ring.full(state));
    }
    state.advance();
  }
  __device__ __forceinline__ void load_k(const PrefillWork& work, int block) {
    load_block(rings.k, k_state, p.k, tile::ptx::shared_address(shared.k[k_state.index]), k_box,
               p.common.k_page_table, p.common.k_table_stride, work, block);
  }
  __device__ __forceinline__ void load_v(const PrefillWork& work, int block) {
    load_block(rings.v, v_state, p.v, tile::ptx::shared_address(shared.v[v_state.index]), v_box,
               p.common.v_page_table, p.common.v_table_stride, work, block);
  }

  // Whether a tile depends on what earlier kernels may have written.
  __device__ bool is_work_in_memory() const {
    return p.common.q_starts != nullptr || p.common.kv_starts != nullptr ||
           p.common.kv_lens != nullptr || p.common.mask.intervals != nullptr;
  }

  // The next tile, with its queries, in the next slot. False: none is left.
  __device__ __forceinline__ bool prepare_work() {
    rings.work.producer_acquire(work_state);
    PrefillWork& work = shared.works[work_state.index];
    if (round == 0 && is_work_in_memory()) tile::wait_for_previous(Sm90{});
    const bool is_work = make_work<Tile>(p, tile_of_round(round), work);
    if (round == 0) tile::wait_for_previous(Sm90{});
    ++round;
    __syncwarp();
    if (lane == 0) rings.work.producer_commit(work_state);
    if (is_work && work.blocks.first() >= 0) load_q(work);
    work_state.advance();
    return is_work;
  }

  // One warp: all but the values, unless those are 8-bit, whose warps have other work (turn.cuh);
  // then they trail the keys by a block, as the consumers do. While a tile's blocks are loaded,
  // early enough that nobody will wait for its queries, the next one is prepared.
  __device__ void run() {
    int slot = -1;
    int block = -1;
    int count = 0;  // of the tile's blocks so far
    bool is_prepared = false;
    bool is_more = true;
    while (true) {
      if (!is_prepared && is_more && (block < 0 || count == kPrepareAfter)) {
        is_more = prepare_work();
        is_prepared = true;
      }
      if (block < 0) {
        if (!is_more) break;
        slot = (slot + 1) % kWorkSlots;
        is_prepared = false;
        count = 0;
        block = shared.works[slot].blocks.first();
        if (block < 0) continue;
        load_k(shared.works[slot], block);
      }
      const PrefillWork& work = shared.works[slot];
      const int next = work.blocks.before(block);
      if (next >= 0) load_k(work, next);
      if constexpr (Shared::kTurnsV) load_v(work, block);
      block = next;
      ++count;
    }
    tile::release_next(Sm90{});
  }

  // One more warp: the values. Of small pages there are many boxes in a block, and issuing them is
  // what takes the time: then two warps share the keys, and two the values.
  template <bool kLoadsKeys>
  __device__ void run_beside() {
    tile::wait_for_previous(Sm90{});
    while (true) {
      rings.work.consumer_wait(work_state);
      const PrefillWork& work = shared.works[work_state.index];
      if (work.head < 0) return;
      for (int block = work.blocks.first(); block >= 0; block = work.blocks.before(block)) {
        if constexpr (kLoadsKeys) {
          load_k(work, block);
        } else {
          load_v(work, block);
        }
      }
      __syncwarp();
      if (lane == 0) rings.work.consumer_release(work_state);
      work_state.advance();
    }
  }
};

}  // namespace tessera::kernels
