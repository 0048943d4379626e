// The consumer warpgroups, each with 64 queries: they keep the tensor cores busy while they compute
// exponentials.
// SPDX-License-Identifier: MIT
//
// Two kinds of overlap. Between warpgroups a token circulates: the warpgroup that has it issues the
// scores of its next block and the products of the current one; meanwhile the others use the
// exponential unit. Within a warpgroup, if there are only two, the softmax of the next block runs
// during the products of the current one. Neither stops at the end of a tile: the last products of
// a tile are followed at once by the first scores of the next, during which results are stored.
#pragma once

#include "kernels/attention/prefill/sm90/produce.cuh"
#include "kernels/attention/prefill/sm90/softmax.cuh"
#include "tile/descriptor.cuh"
#include "tile/ptx/barrier.cuh"
#include "tile/ptx/shared.cuh"
#include "tile/ptx/stmatrix.cuh"
#include "tile/ptx/tma_tensor.cuh"
#include "tile/ptx/wgmma.cuh"
#include "tile/swizzle.cuh"

namespace tessera::kernels::prefill_sm90 {

// Transposes four words over four lanes: before, each lane has a word of every block of columns;
// after, lane i has the four words of block i, 16 contiguous bytes.
__device__ __forceinline__ void gather_block(uint32_t (&words)[4]) {
  const bool is_odd = threadIdx.x % 2 == 1;
  const bool is_high = threadIdx.x / 2 % 2 == 1;
  TESSERA_UNROLL
  for (int half = 0; half < 4; half += 2) {
    const uint32_t got = __shfl_xor_sync(~0u, is_odd ? words[half] : words[half + 1], 1);
    words[half] = is_odd ? got : words[half];
    words[half + 1] = is_odd ? words[half + 1] : got;
  }
  const uint32_t got0 = __shfl_xor_sync(~0u, is_high ? words[0] : words[2], 2);
  const uint32_t got1 = __shfl_xor_sync(~0u, is_high ? words[1] : words[3], 2);
  const uint32_t kept0 = is_high ? words[2] : words[0];
  const uint32_t kept1 = is_high ? words[3] : words[1];
  words[0] = is_high ? got0 : kept0;
  words[1] = is_high ? got1 : kept1;
  words[2] = is_high ? kept0 : got0;
  words[3] = is_high ? kept1 : got1;
}

// The thread index, opaque to the compiler, so that what is derived from it here is computed again
// rather than kept in registers throughout a tile.
__device__ __forceinline__ int fresh_thread() {
  int thread = static_cast<int>(threadIdx.x);
  asm volatile("" : "+r"(thread));
  return thread;
}

// The first of a thread's two rows in the sequence; the other is 8 further.
__device__ __forceinline__ int first_row_of(int thread, const PrefillWork& work, int warpgroup) {
  return work.first_row + 64 * warpgroup + thread % 128 / 32 * 16 + thread % 32 / 4;
}

// Where a row of the tile is stored.
template <class Out>
struct OutRow {
  Out* out;    // null: the sequence has no such row
  float* lse;  // null: not wanted
};

template <class Out>
__device__ OutRow<Out> out_row(const Sm90PrefillParams& p, const PrefillWork& work, int row) {
  if (row >= work.q_len) return {nullptr, nullptr};
  const AttentionParams& c = p.common;
  const int64_t at = work.q_begin + (row >> p.log2_packed);
  const int head = (work.head << p.log2_packed) + (row & ((1 << p.log2_packed) - 1));
  Out* out = static_cast<Out*>(c.out) + work.sequence * c.out_strides.batch +
             at * c.out_strides.row + head * c.out_strides.head;
  if (c.lse == nullptr) return {out, nullptr};
  return {out, c.lse + work.sequence * c.lse_strides.batch + at * c.lse_strides.row +
                   head * c.lse_strides.head};
}

template <class Out, class Tile>
__device__ void store_tile(const Sm90PrefillParams& p, const PrefillWork& work, int warpgroup,
                           const float (&o)[Tile::kValueDim / 2], const RowEnds& ends) {
  const int thread = fresh_thread();
  const int lane = thread % 32;
  const int first = first_row_of(thread, work, warpgroup);
  TESSERA_UNROLL
  for (int r = 0; r < 2; ++r) {
    const OutRow<Out> row = out_row<Out>(p, work, first + 8 * r);
    TESSERA_UNROLL
    for (int group = 0; group < Tile::kValueDim / 32; ++group) {
      uint32_t words[4];
      TESSERA_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int at = 16 * group + 4 * i + 2 * r;
        words[i] = tile::pack_pair<Out>(o[at] * ends.factor[r], o[at + 1] * ends.factor[r]);
      }
      gather_block(words);
      if (row.out != nullptr && (!Tile::kIsPadded || 32 * group + 8 * (lane % 4) < p.value_dim)) {
        *reinterpret_cast<uint4*>(row.out + 32 * group + 8 * (lane % 4)) =
            uint4{words[0], words[1], words[2], words[3]};
      }
    }
    if (row.lse != nullptr && lane % 4 == 0) *row.lse = ends.lse[r];
  }
}

// The same through shared memory and TMA: results overwrite the warpgroup's queries, which nobody
// reads any more. Afterwards one thread has stores in flight.
template <class Out, class Tile>
__device__ void stage_tile(const Sm90PrefillParams& p, const PrefillWork& work, int warpgroup,
                           uint32_t q_tile, int barrier, const float (&o)[Tile::kValueDim / 2],
                           const RowEnds& ends) {
  constexpr int kSlabCols = kSlabBytes / static_cast<int>(sizeof(Out));
  const int thread = fresh_thread();
  const int lane = thread % 32;
  const int warp = thread % 128 / 32;
  const tile::MatrixRow at = tile::matrix_row_16x32(lane);
  const uint32_t rows = q_tile + 64 * warpgroup * kSlabBytes;
  TESSERA_UNROLL
  for (int step = 0; step < Tile::kValueDim / 16; ++step) {
    uint32_t words[4];
    TESSERA_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int reg = 8 * step + 2 * i;
      words[i] = tile::pack_pair<Out>(o[reg] * ends.factor[i % 2], o[reg + 1] * ends.factor[i % 2]);
    }
    const int slab = step / 4;
    tile::ptx::stmatrix(rows + slab * Tile::kRows * kSlabBytes +
                            tile::swizzled(tile::Swizzle::b128, (16 * warp + at.row) * kSlabBytes +
                                                                    32 * (step % 4) + at.byte),
                        words);
  }
  if (p.common.lse != nullptr && lane % 4 == 0) {
    TESSERA_UNROLL
    for (int r = 0; r < 2; ++r) {
      const OutRow<Out> out = out_row<Out>(p, work, first_row_of(thread, work, warpgroup) + 8 * r);
      if (out.lse != nullptr) *out.lse = ends.lse[r];
    }
  }
  tile::ptx::fence_proxy_async_shared();
  tile::ptx::bar_sync(barrier, 128);
  if (threadIdx.x % 128 == 0) {
    const int row = work.q_begin + ((work.first_row + 64 * warpgroup) >> p.log2_packed);
    const int batch = p.common.q_starts != nullptr ? 0 : work.sequence;
    TESSERA_UNROLL
    for (int slab = 0; slab < (Tile::kValueDim + kSlabCols - 1) / kSlabCols; ++slab) {
      tile::ptx::tensor_store(&p.out, tile::ptx::Coord{slab * kSlabCols, 0, row, work.head, batch},
                              rows + slab * Tile::kRows * kSlabBytes);
    }
    tile::ptx::bulk_commit_group();
  }
}

// The same for results whose columns are permuted like transposed 8-bit values (produce.cuh), to
// bf16 or f16: a lane has four neighbours.
template <class Tile>
__device__ void store_turned(const Sm90PrefillParams& p, const PrefillWork& work, int warpgroup,
                             const float (&o)[Tile::kValueDim / 2], const RowEnds& ends) {
  const int thread = fresh_thread();
  const int lane = thread % 32;
  const int first = first_row_of(thread, work, warpgroup);
  TESSERA_UNROLL
  for (int r = 0; r < 2; ++r) {
    const OutRow<uint16_t> row = out_row<uint16_t>(p, work, first + 8 * r);
    if (row.out == nullptr) continue;
    TESSERA_UNROLL
    for (int group = 0; group < Tile::kValueDim / 16; ++group) {
      float x[4];
      TESSERA_UNROLL
      for (int i = 0; i < 4; ++i) {
        x[i] = o[8 * group + 4 * (i % 2) + 2 * r + i / 2] * ends.factor[r];
      }
      const uint2 words =
          p.is_out_bf16
              ? uint2{tile::pack_pair<Bf16>(x[0], x[1]), tile::pack_pair<Bf16>(x[2], x[3])}
              : uint2{tile::pack_pair<F16>(x[0], x[1]), tile::pack_pair<F16>(x[2], x[3])};
      *reinterpret_cast<uint2*>(row.out + 16 * group + 4 * (lane % 4)) = words;
    }
    if (row.lse != nullptr && lane % 4 == 0) *row.lse = ends.lse[r];
  }
}

// For a tile none of whose rows sees a key.
__device__ inline RowEnds unseen_ends(const Sm90PrefillParams& p, const PrefillWork& work) {
  const float* sinks = p.common.scores.sinks;
  const float lse = sinks != nullptr ? sinks[work.head] : kMinusInfinity;
  return {{0, 0}, {lse, lse}};
}

// Where a warpgroup is among the blocks of its tile.
template <class Tile>
struct TileFlow {
  int warpgroup;
  const PrefillWork* work;
  int block;  // whose weights are in registers
  int next;   // negative: none
  bool is_full;
  bool is_first;
  // Bounds of the mask's range that contains `next`; most steps stay in it.
  int range_begin;
  int full_begin;
  int full_end;

  __device__ __forceinline__ void begin(const PrefillWork* tile) {
    work = tile;
    next = work->blocks.first();
    enter_range();
    step();
    is_first = true;
  }

  __device__ __forceinline__ void step() {
    block = next;
    is_full = block >= full_begin && block < full_end;
    if (block > range_begin) {
      next = block - 1;
    } else {
      next = work->blocks.before(block);
      if (next >= 0) enter_range();
    }
  }

  // Whether the warpgroup's rows see nothing of the block, like the upper rows of a tile in the
  // first blocks under a causal mask. The last block is never skipped, so that every tile has a
  // result.
  __device__ __forceinline__ bool skips() const {
    return Tile::kSkipsBlocks && next >= 0 && !own_blocks().has(block);
  }

 private:
  // The blocks that the warpgroup's rows see.
  __device__ __forceinline__ const BlockRanges& own_blocks() const {
    if constexpr (Tile::kSkipsBlocks) {
      return work->of_warpgroup[warpgroup];
    } else {
      return work->blocks;
    }
  }

  // A block that is full in the other range only counts as mixed: masking it changes nothing.
  __device__ __forceinline__ void enter_range() {
    const BlockRanges& all = work->blocks;
    const bool is_x = next >= all.seen_begin.x && next < all.seen_end.x;
    const BlockRanges& own = own_blocks();
    range_begin = is_x ? all.seen_begin.x : all.seen_begin.y;
    full_begin = is_x ? own.full_begin.x : own.full_begin.y;
    full_end = is_x ? own.full_end.x : own.full_end.y;
  }
};

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

  // The token: named barriers 1 and up, one per warpgroup, each with a waiting and a passing
  // warpgroup.
  __device__ void take_turn() const { tile::ptx::bar_sync(1 + warpgroup, 256); }
  __device__ void pass_turn() const {
    const int next = warpgroup + 1 == Tile::kWarpgroups ? 0 : warpgroup + 1;
    tile::ptx::bar_arrive(1 + next, 256);
  }

  // The next tile, or null after the last. finish_work releases its slot.
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

  // Issues the scores of the current block of k.
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

  // Issues the products of the weights with the current block of v, 32 bytes of keys per step.
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

  // Zeroes rows of v that no query of the tile sees: they may hold NaN, and zero times NaN is not
  // zero. Every warpgroup does it for itself; all write the same zeros.
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

  // Waits for the values of `block`.
  __device__ void wait_v(const PrefillWork& work, int block, bool is_full) const {
    rings.values().consumer_wait(v_state);
    if (!Shared::kTurnsV && p.zeroes_v && !is_full) clear_unseen(work, block);
  }

  using Flow = TileFlow<Tile>;

  // Moves from the tile's first block, whose scores are done, to the first that the warpgroup sees.
  // It takes its turns like the others.
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

  // Moves to the next block: issues its scores and the products of the current block, and computes
  // the weights of the former during the latter.
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

  // Blocks are summed in the accumulators, or beside them with kSumsInFloat.
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

  // By asm, so that ptxas does not merge the two while products are in flight.
  static __device__ __forceinline__ void move(const Weights& from, Weights& to) {
    TESSERA_UNROLL
    for (int i = 0; i < Softmax::kWeightRegs; ++i) {
      asm volatile("mov.b32 %0, %1;" : "=r"(to[i]) : "r"(from[i]));
    }
  }

  // Stores the results of a tile from registers.
  __device__ __forceinline__ void store_rows(const PrefillWork& work, const Out& o,
                                             const RowEnds& ends) const {
    if constexpr (Shared::kTurnsV) {
      store_turned<Tile>(p, work, warpgroup, o, ends);
    } else {
      store_tile<T, Tile>(p, work, warpgroup, o, ends);
    }
  }
  // Stores them by TMA where possible.
  __device__ __forceinline__ void store(const PrefillWork& work, const Out& o,
                                        const RowEnds& ends) {
    if constexpr (Shared::kStagesOut) {
      // TMA clips at the end of the tensor, but not at the end of a ragged sequence.
      if (p.common.q_starts == nullptr || work.first_row + 64 * (warpgroup + 1) <= work.q_len) {
        stage_tile<T, Tile>(p, work, warpgroup,
                            tile::ptx::shared_address(shared.q[q_release.index]),
                            1 + Tile::kWarpgroups + warpgroup, o, ends);
        return;
      }
    }
    store_rows(work, o, ends);
  }

  // Releases a tile's query buffer once its results have been read from it.
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
        // Two steps with swapped buffers save the moves, if there are registers for it.
        if (Tile::kQueryBuffers == 1 || flow.next < 0) {
          move(next_weights, weights);
        } else {
          advance(s, next_weights, weights, o, total, softmax, flow);
        }
      }
      // All scores of the tile are done.
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
      // Stores are read from the query buffer meanwhile. A warpgroup that skips blocks may wait for
      // the producer, which may wait for that buffer, so it releases the buffer first.
      const bool gives_early = flow.skips();
      if (gives_early) finish_store();
      skip_unseen(s, flow);
      softmax.weigh_first(s, weights, *flow.work, flow.block, flow.is_full);
      if (!gives_early) finish_store();
    }
  }

  // The next tile that sees a key. Tiles that see none are stored on the way.
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

}  // namespace tessera::kernels::prefill_sm90
