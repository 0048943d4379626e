// The Hopper decode kernel: a block, or several, for the queries that share a head's keys. Every
// warp takes a run of leaves for itself; states are folded over warps and blocks in the end.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/attention/decode_sm90/decode_warp.cuh"
#include "kernels/attention/decode_sm90/finish.cuh"
#include "tile/arch.cuh"

namespace tessera::kernels {

// A warp's states of higher levels of the tree in shared memory. Where four queries or fewer are
// asked for, half of the lanes have none of them, and there is room for twice as many levels.
template <class Tile>
class WaitingStates {
 public:
  __device__ WaitingStates(Sm90DecodeShared<Tile>& shared, int warp, int lane, int rows)
      : is_half_(rows <= 4), has_columns_(!is_half_ || lane % 4 < 2) {
    first_ = shared.waiting[warp] + (is_half_ ? lane / 4 * 2 + lane % 2 : lane);
  }

  __device__ __forceinline__ int num_levels() const {
    return is_half_ ? 2 * Tile::kSharedLevels : Tile::kSharedLevels;
  }

  __device__ __forceinline__ void keep(const WarpState<Tile>& state, int level) const {
    static_assert(!Tile::kHasOffset && Tile::kTiles == 1);
    if (!has_columns_) return;
    float4* to = place(level);
    TESSERA_UNROLL
    for (int d = 0; d < kSteps; ++d) {
      const float(&o)[4] = state.o[0][d];
      to[d * pitch()] = {o[0], o[1], o[2], o[3]};
    }
    const float(&reference)[2] = state.reference[0], (&sum)[2] = state.sum[0];
    to[kSteps * pitch()] = {reference[0], reference[1], sum[0], sum[1]};
  }

  __device__ __forceinline__ WarpState<Tile> kept(int level) const {
    const float4* from = place(level);
    WarpState<Tile> state{};
    TESSERA_UNROLL
    for (int d = 0; d < kSteps; ++d) {
      const float4 o = from[d * pitch()];
      state.o[0][d][0] = o.x;
      state.o[0][d][1] = o.y;
      state.o[0][d][2] = o.z;
      state.o[0][d][3] = o.w;
    }
    const float4 sums = from[kSteps * pitch()];
    state.reference[0][0] = sums.x;
    state.reference[0][1] = sums.y;
    state.sum[0][0] = sums.z;
    state.sum[0][1] = sums.w;
    return state;
  }

 private:
  static constexpr int kSteps = Tile::kD / 16;
  __device__ __forceinline__ int pitch() const { return is_half_ ? 16 : 32; }
  __device__ __forceinline__ float4* place(int level) const {
    return first_ + (level - 1) * Tile::kStateQuads * pitch();
  }

  bool is_half_, has_columns_;
  float4* first_;
};

// The warp's state is of leaf `i` of `count`: it is folded behind the states of earlier leaves that
// wait for it, and waits itself for later ones: of the lowest level in registers, of the next ones
// in shared memory where the tile has room, of others in memory, which costs far more than its
// bytes while keys and values stream. Codes of four queries need none of it: a warp has two leaves
// at most, in the two halves of the columns.
inline constexpr int kMostLevels = 5;  // a warp has 32 leaves at most
template <class Q, class Tile>
__device__ __forceinline__ void fold_leaf(DecodeWarp<Q, Tile>& w, int warp, int i, int count,
                                          WarpState<Tile>& lowest,
                                          WarpState<Tile> (&higher)[kMostLevels]) {
  int level = 0;
  if constexpr (Tile::kKeepsLowest) {
    if ((i & 1) == 0) {
      lowest = w.state;
      return;
    }
    w.state.fold_behind(lowest);
    level = 1;
  }
  if constexpr (Tile::kSharedLevels > 0) {
    const WaitingStates<Tile> waiting(w.shared, warp, w.lane, w.p.rows);
#pragma unroll 1
    for (; level <= waiting.num_levels(); ++level) {
      if ((i >> level & 1) == 0) {
        if (i + 1 < count) waiting.keep(w.state, level);
        return;
      }
      w.state.fold_behind(waiting.kept(level));
    }
  }
#pragma unroll 1
  for (; i >> level & 1; ++level) w.state.fold_behind(higher[level]);
  if (i + 1 < count) higher[level] = w.state;
}

// Grid: parts; heads of keys; sequences times groups of kRows queries.
template <class Q, class Tile, int kCluster>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocksOnSm)
    attention_decode_sm90_kernel(const __grid_constant__ Sm90DecodeParams p) {
  extern __shared__ char raw[];
  auto& shared = *reinterpret_cast<Sm90DecodeShared<Tile>*>(raw);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (threadIdx.x == 0) {
    tile::ptx::prefetch_tensormap(&p.k);
    tile::ptx::prefetch_tensormap(&p.v);
  }
  StepRing<Tile> ring(p, shared, warp, lane);
  // Groups of rows are rare, and a division takes as long as a launch.
  const int z = static_cast<int>(blockIdx.z);
  const bool is_one_group = p.num_row_groups == 1;
  DecodeUnit unit{.sequence = is_one_group ? z : z / p.num_row_groups,
                  .kv_head = static_cast<int>(blockIdx.y),
                  .first_row = is_one_group ? 0 : z % p.num_row_groups * Tile::kRows,
                  .part = static_cast<int>(blockIdx.x)};
  tile::wait_for_previous(Sm90{});

  const int len = max(p.seq_lens[unit.sequence], 0);
  const int first_key = Tile::kIsGeneral ? max(len - p.q_len + 1 - p.window, 0) : 0;
  const int first_step = first_key / kStepKeys;
  const int num_steps = (len + kStepKeys - 1) / kStepKeys - first_step;
  int log2_leaves_here = log2_leaves(num_steps, Tile::K::kBits);
  // A short sequence takes fewer parts than were launched for the longest.
  const int log2_parts =
      kCluster > 1 ? p.log2_parts : min(p.log2_parts, log2_leaves_here - Tile::kLog2Warps);
  if (unit.part >> log2_parts != 0) return;
  // The plan sees to it, unless a sequence is longer than what it was told.
  if constexpr (Tile::kIsNarrow) {
    log2_leaves_here = min(log2_leaves_here, log2_parts + Tile::kLog2Warps + 1);
  }
  const LeafRange mine =
      leaves_of(unit.part * Tile::kWarps + warp, log2_parts + Tile::kLog2Warps, log2_leaves_here);
  unit.has_pairs = Tile::kIsNarrow && mine.count == 2;
  const auto step_of = [&](int leaf) {
    return first_step + leaf_begin(leaf, log2_leaves_here, num_steps);
  };
  const KeyRun run{.sequence = unit.sequence,
                   .kv_head = unit.kv_head,
                   .len = len,
                   .first_key = first_key,
                   .begin = step_of(mine.first),
                   .end = step_of(mine.first + mine.count)};
  ring.start(run);
  if constexpr (Tile::K::kHasColumns) start_tail<Q>(p, shared, run, lane);
  tile::release_next(Sm90{});

  DecodeWarp<Q, Tile> w{p, ring, shared, lane, run, unit.first_row};
  w.load_q();
  if (mine.count == 0) {
    w.is_odd = false;
    w.clear();
  }
  WarpState<Tile> lowest, higher[kMostLevels];
  int step = run.begin;
#pragma unroll 1
  for (int i = 0; i < mine.count; ++i) {
    const int end = step_of(mine.first + i + 1);
    w.take_leaf(step, end, (mine.first + i) % 2 != 0);
    step = end;
    if constexpr (Tile::kIsNarrow) {
      if (unit.has_pairs && i == 0) leave_sums(w, warp);
    } else if (mine.count > 1) {
      fold_leaf(w, warp, i, mine.count, lowest, higher);
    }
  }
  __syncthreads();  // the states lie where the rings were
  leave_state(w, warp, unit.has_pairs);
  __syncthreads();
  finish<Q, Tile, kCluster>(p, shared, unit, log2_parts);
}

}  // namespace tessera::kernels
