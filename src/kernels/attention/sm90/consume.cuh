// Who computes: warpgroups, each with 64 queries, that keep the tensor cores busy while they take
// exponentials.
// SPDX-License-Identifier: MIT
//
// Two overlaps. Between warpgroups a token goes round: who has it issues the scores of its next
// block and the products of this one, and the others have the exponential unit meanwhile. Within a
// warpgroup, where there are but two, the softmax of the next block runs under the products of this
// one. Neither stops at the end of a tile: the last products of one are followed at once by the
// first scores of the next, and results are stored under these.
#pragma once

#include "kernels/attention/sm90/flow.cuh"
#include "kernels/attention/sm90/produce.cuh"
#include "kernels/attention/sm90/softmax.cuh"
#include "kernels/attention/sm90/store.cuh"
#include "tile/descriptor.cuh"
#include "tile/ptx/barrier.cuh"
#include "tile/ptx/shared.cuh"
#include "tile/ptx/wgmma.cuh"

namespace tessera::kernels {

template <class T, class Tile, bool kIsGeneral>
struct PrefillConsumer {
  using Shared = PrefillShared<T, Tile>;
  static constexpr int kScoreRegs = Tile::kKeys / 2;
  static constexpr int kOutRegs = Tile::kValueDim / 2;
  using Softmax = PrefillSoftmax<T, Tile, kIsGeneral>;
  using Scores = float[kScoreRegs];
  using Weights = typename Softmax::Weights;
  using Out = float[kOutRegs];
  using Total = float[Tile::kSumsInFloat ? kOutRegs : 1];
  static constexpr tile::Swizzle kSwizzle = tile::Swizzle::b128;
  static constexpr tile::ptx::WgmmaFlags kVMajor{.b_is_mn_major = !Shared::kTurnsV};

  const Sm90PrefillParams& p;
  Shared& shared;
  PrefillRings<T, Tile>& rings;
  int warpgroup;
  tile::PipelineState<Tile::kQueryBuffers> q_state = {};
  tile::PipelineState<Tile::kQueryBuffers> q_release = {};
  tile::PipelineState<Tile::kStages> k_state = {};
  tile::PipelineState<Tile::kStages> v_state = {};
  tile::PipelineState<kWorkSlots> work_state = {};

  static __device__ bool is_leader() { return threadIdx.x % 128 == 0; }

  // The token. Barriers 1 and up, one for each warpgroup, count who waits and who passes it on.
  __device__ void take_turn() const { tile::ptx::bar_sync(1 + warpgroup, 256); }
  __device__ void pass_turn() const {
    const int next = warpgroup + 1 == Tile::kWarpgroups ? 0 : warpgroup + 1;
    tile::ptx::bar_arrive(1 + next, 256);
  }

  // The next tile, or null behind the last. Its slot is given back by finish_work.
  __device__ const PrefillWork* take_work() {
    rings.work.consumer_wait(work_state);
    const PrefillWork* work = &shared.works[work_state.index];
    work_state.advance();
    return work->head < 0 ? nullptr : work;
  }
  __device__ void finish_work(const PrefillWork* work) const {
    tile::PipelineState<kWorkSlots> state;
    state.index = static_cast<int>(work - shared.works);
    __syncwarp();
    tile::ptx::bar_sync(1 + Tile::kWarpgroups + warpgroup, 128);
    if (is_leader()) rings.work.consumer_release(state);
  }

  // Starts the scores of the block in the ring.
  __device__ void start_scores(Scores& s) const {
    const uint64_t q = tile::k_major_descriptor<kSwizzle>(
        tile::ptx::shared_address(shared.q[0]) + 64 * warpgroup * kSlabBytes, Tile::kRows);
    const uint64_t k =
        tile::k_major_descriptor<kSwizzle>(tile::ptx::shared_address(shared.k[0]), Tile::kKeys);
    const uint64_t q_tile = tile::advance(q, q_state.index * Shared::kQBytes);
    const uint64_t k_tile = tile::advance(k, k_state.index * Shared::kKBytes);
    TESSERA_UNROLL
    for (int step = 0; step < Tile::kKeyDim * static_cast<int>(sizeof(T)) / 32; ++step) {
      const uint64_t q_step =
          tile::advance(q_tile, tile::k_major_advance<kSwizzle>(Tile::kRows, 32 * step));
      const uint64_t k_step =
          tile::advance(k_tile, tile::k_major_advance<kSwizzle>(Tile::kKeys, 32 * step));
      if (step == 0) {
        tile::ptx::wgmma_ss_first<T, T>(s, q_step, k_step);
      } else {
        tile::ptx::wgmma_ss<T, T>(s, q_step, k_step, true);
      }
    }
    tile::ptx::wgmma_commit_group();
  }

  // Starts the products of the weights with the block of v in the ring, 32 bytes of keys a step.
  __device__ void start_products(Out& o, const Weights& weights, bool accumulate) const {
    uint64_t v_tile;
    if constexpr (Shared::kTurnsV) {
      v_tile = tile::advance(tile::k_major_descriptor<kSwizzle>(
                                 tile::ptx::shared_address(shared.turned[0]), Tile::kValueDim),
                             v_state.index * Shared::kTurnedBytes);
    } else {
      v_tile = tile::advance(
          tile::mn_major_descriptor<kSwizzle>(tile::ptx::shared_address(shared.v[0]), Tile::kKeys),
          v_state.index * Shared::kVBytes);
    }
    TESSERA_UNROLL
    for (int step = 0; step < Tile::kKeys * static_cast<int>(sizeof(T)) / 32; ++step) {
      const uint32_t a[4] = {weights[4 * step], weights[4 * step + 1], weights[4 * step + 2],
                             weights[4 * step + 3]};
      const uint32_t bytes = Shared::kTurnsV
                                 ? tile::k_major_advance<kSwizzle>(Tile::kValueDim, 32 * step)
                                 : tile::mn_major_advance<kSwizzle>(16 * step);
      tile::ptx::wgmma_rs<T, T, kVMajor>(o, a, tile::advance(v_tile, bytes),
                                         step > 0 || accumulate);
    }
    tile::ptx::wgmma_commit_group();
  }

  __device__ void release_q() {
    if (is_leader()) rings.q.consumer_release(q_release);
    q_release.advance();
  }
  __device__ void release_k() {
    if (is_leader()) rings.k.consumer_release(k_state);
    k_state.advance();
  }
  __device__ void release_v() {
    if (is_leader()) rings.values().consumer_release(v_state);
    v_state.advance();
  }

  // Rows of v that no query of the tile sees may hold anything, NaN too, and zero times NaN is not
  // zero. Every warpgroup clears them for itself: the others write the same zeros.
  __device__ void clear_unseen(const PrefillWork& work, int block) const {
    const KeyRange any[2] = {{work.any_begin[0], work.any_end[0]},
                             {work.any_begin[1], work.any_end[1]}};
    const KeyRange keys{block * Tile::kKeys, (block + 1) * Tile::kKeys};
    if (any[0].holds(keys) || any[1].holds(keys)) return;
    const uint32_t tile = tile::ptx::shared_address(shared.v[v_state.index]);
    const int chunk = static_cast<int>(threadIdx.x) % 8;
    for (int row = static_cast<int>(threadIdx.x) % 128 / 8; row < Tile::kKeys; row += 16) {
      if (any[0].has(keys.begin + row) || any[1].has(keys.begin + row)) continue;
      TESSERA_UNROLL
      for (int slab = 0; slab < Shared::kValueSlabs; ++slab) {
        tile::ptx::store_shared(tile + (slab * Tile::kKeys + row) * kSlabBytes + 16 * chunk,
                                uint4{0, 0, 0, 0});
      }
    }
    tile::ptx::fence_proxy_async_shared();
    tile::ptx::bar_sync(1 + Tile::kWarpgroups + warpgroup, 128);
  }

  // Waits for the block of v that the weights of `block` meet.
  __device__ void wait_v(const PrefillWork& work, int block, bool is_full) const {
    rings.values().consumer_wait(v_state);
    if (!Shared::kTurnsV && p.zeroes_v && !is_full) clear_unseen(work, block);
  }

  using Flow = TileFlow<Tile>;

  // From the tile's first block, whose scores are there, to the first that the warpgroup sees. The
  // turns are taken as the others take theirs.
  __device__ __forceinline__ void skip_unseen(Scores& s, Flow& flow) {
    while (flow.skips()) {
      rings.values().consumer_wait(v_state);
      release_v();
      rings.k.consumer_wait(k_state);
      take_turn();
      tile::ptx::wgmma_fence();
      start_scores(s);
      pass_turn();
      flow.step();
      tile::ptx::wgmma_wait_group<0>();
      tile::ptx::wgmma_hold(s);
      release_k();
    }
  }

  // From one block to the next: starts its scores and the products of this one, and weighs the
  // former under the latter.
  __device__ __forceinline__ void advance(Scores& s, const Weights& weights, Weights& next_weights,
                                          Out& o, Total& total, Softmax& softmax, Flow& flow) {
    rings.k.consumer_wait(k_state);
    wait_v(*flow.work, flow.block, flow.is_full);
    take_turn();
    tile::ptx::wgmma_fence();
    start_scores(s);
    tile::ptx::wgmma_fence();
    start_products(o, weights, accumulates(flow));
    pass_turn();
    const bool was_first = flow.is_first;
    flow.step();
    flow.is_first = false;
    if constexpr (Tile::kOverlaps) {
      tile::ptx::wgmma_wait_group<1>();
      tile::ptx::wgmma_hold(s);
      release_k();
      const bool rescales = softmax.weigh(s, next_weights, *flow.work, flow.block, flow.is_full);
      tile::ptx::wgmma_wait_group<0>();
      tile::ptx::wgmma_hold(o);
      release_v();
      add_up(o, total, was_first);
      if (rescales) softmax.rescale(sums(o, total));
    } else {
      tile::ptx::wgmma_wait_group<0>();
      tile::ptx::wgmma_hold(s);
      tile::ptx::wgmma_hold(o);
      release_k();
      release_v();
      add_up(o, total, was_first);
      const bool rescales = softmax.weigh(s, next_weights, *flow.work, flow.block, flow.is_full);
      if (rescales) softmax.rescale(sums(o, total));
    }
  }

  // Sums over blocks: in the accumulators, or beside them.
  __device__ static bool accumulates(const Flow& flow) {
    return !Tile::kSumsInFloat && !flow.is_first;
  }
  __device__ static __forceinline__ void add_up(const Out& o, Total& total, bool is_first) {
    if constexpr (Tile::kSumsInFloat) {
      TESSERA_UNROLL
      for (int i = 0; i < kOutRegs; ++i) total[i] = is_first ? o[i] : total[i] + o[i];
    }
  }
  __device__ static __forceinline__ Out& sums(Out& o, Total& total) {
    if constexpr (Tile::kSumsInFloat) {
      return total;
    } else {
      return o;
    }
  }

  // By hand: the assembler must not take the two for one while products are under way.
  static __device__ __forceinline__ void move(const Weights& from, Weights& to) {
    TESSERA_UNROLL
    for (int i = 0; i < Softmax::kWeightRegs; ++i) {
      asm volatile("mov.b32 %0, %1;" : "=r"(to[i]) : "r"(from[i]));
    }
  }

  // Results of a tile leave their registers, row by row.
  __device__ __forceinline__ void store_rows(const PrefillWork& work, const Out& o,
                                             const RowEnds& ends) const {
    if constexpr (Shared::kTurnsV) {
      store_turned<Tile>(p, work, warpgroup, o, ends);
    } else {
      store_tile<T, Tile>(p, work, warpgroup, o, ends);
    }
  }
  // Or by the copy engine, where it may.
  __device__ __forceinline__ void store(const PrefillWork& work, const Out& o,
                                        const RowEnds& ends) {
    if constexpr (Shared::kStagesOut) {
      // The copy engine knows where a tensor ends, but not where a ragged sequence does.
      if (p.common.q_starts == nullptr || work.first_row + 64 * (warpgroup + 1) <= work.q_len) {
        stage_tile<T, Tile>(p, work, warpgroup,
                            tile::ptx::shared_address(shared.q[q_release.index]),
                            1 + Tile::kWarpgroups + warpgroup, o, ends);
        return;
      }
    }
    store_rows(work, o, ends);
  }

  // The place of a tile's queries, when its results have left it.
  __device__ __forceinline__ void finish_store() {
    if constexpr (!Shared::kStagesOut) return;
    if (is_leader()) tile::ptx::bulk_wait_group_read<0>();
    release_q();
  }

  __device__ void run() {
    if (warpgroup == Tile::kWarpgroups - 1) pass_turn();
    Flow flow{warpgroup};
    const PrefillWork* first = next_seen();
    if (first == nullptr) return;
    Scores s;
    Out o;
    Total total;
    Weights weights, next_weights;
    Softmax softmax(p, warpgroup);
    rings.q.consumer_wait(q_state);
    rings.k.consumer_wait(k_state);
    take_turn();
    tile::ptx::wgmma_fence();
    start_scores(s);
    pass_turn();
    flow.begin(first);
    tile::ptx::wgmma_wait_group<0>();
    tile::ptx::wgmma_hold(s);
    release_k();
    skip_unseen(s, flow);
    softmax.weigh_first(s, weights, *flow.work, flow.block, flow.is_full);
    while (true) {
      while (flow.next >= 0) {
        if constexpr (!Tile::kOverlaps) {
          advance(s, weights, weights, o, total, softmax, flow);
          continue;
        }
        advance(s, weights, next_weights, o, total, softmax, flow);
        // Two steps in turn save the moves, where there are registers for them.
        if (Tile::kQueryBuffers == 1 || flow.next < 0) {
          move(next_weights, weights);
        } else {
          advance(s, next_weights, weights, o, total, softmax, flow);
        }
      }
      // The tile's scores are all there.
      q_state.advance();
      if constexpr (!Shared::kStagesOut) release_q();
      const PrefillWork* next_work = next_seen();
      wait_v(*flow.work, flow.block, flow.is_full);
      take_turn();
      if (next_work == nullptr) {
        tile::ptx::wgmma_fence();
        start_products(o, weights, accumulates(flow));
        pass_turn();
        tile::ptx::wgmma_wait_group<0>();
        tile::ptx::wgmma_hold(o);
        add_up(o, total, flow.is_first);
        store(*flow.work, sums(o, total), softmax.end(*flow.work));
        if (is_leader()) tile::ptx::bulk_wait_group_read<0>();
        return;
      }
      tile::ptx::wgmma_fence();
      start_products(o, weights, accumulates(flow));
      rings.q.consumer_wait(q_state);
      rings.k.consumer_wait(k_state);
      tile::ptx::wgmma_fence();
      start_scores(s);
      pass_turn();
      const PrefillWork* done = flow.work;
      const bool was_first = flow.is_first;
      flow.begin(next_work);
      tile::ptx::wgmma_wait_group<1>();
      tile::ptx::wgmma_hold(o);
      release_v();
      add_up(o, total, was_first);
      store(*done, sums(o, total), softmax.end(*done));
      finish_work(done);
      tile::ptx::wgmma_wait_group<0>();
      tile::ptx::wgmma_hold(s);
      release_k();
      // Stores leave the place of their queries meanwhile. Who skips blocks may wait for the
      // producer, and that one for the place.
      const bool gives_early = flow.skips();
      if (gives_early) finish_store();
      skip_unseen(s, flow);
      softmax.weigh_first(s, weights, *flow.work, flow.block, flow.is_full);
      if (!gives_early) finish_store();
    }
  }

  // The next tile that sees a key; those that see none are done on the way.
  __device__ const PrefillWork* next_seen() {
    const PrefillWork* work = take_work();
    while (work != nullptr && work->blocks.first() < 0) {
      const Out zeros = {};
      store_rows(*work, zeros, unseen_ends(p, *work));
      finish_work(work);
      work = take_work();
    }
    return work;
  }
};

}  // namespace tessera::kernels
