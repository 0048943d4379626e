// The Hopper decode kernel: a block, or several, for the queries that share a head's keys. Every
// warp takes a run of leaves for itself; states are folded over warps and blocks in the end.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/attention/decode_sm90/decode_warp.cuh"
#include "kernels/attention/decode_sm90/finish.cuh"
#include "kernels/attention/decode_sm90/waiting.cuh"
#include "tile/arch.cuh"

namespace tessera::kernels {

// What a warp takes of a sequence's keys.
template <class Tile, int kCluster>
struct WarpShare {
  int len;
  int first_key;  // that a query sees
  int first_step;
  int num_steps;  // of all warps
  int log2_tree;  // leaves of all warps
  int log2_parts;
  LeafRange leaves;

  __device__ __forceinline__ WarpShare(const Sm90DecodeParams& p, int part, int warp, int seq_len)
      : len(max(seq_len, 0)),
        first_key(Tile::kIsGeneral ? max(len - p.q_len + 1 - p.window, 0) : 0),
        first_step(first_key / kStepKeys),
        num_steps((len + kStepKeys - 1) / kStepKeys - first_step),
        log2_tree(log2_leaves(num_steps, Tile::K::kBits)) {
    // A short sequence takes fewer parts than were launched for the longest.
    log2_parts =
        kCluster > 1 ? p.log2_parts : min(p.log2_parts, max(log2_tree - Tile::kLog2Warps, 0));
    // The plan sees to it, unless a sequence is longer than what it was told.
    if constexpr (Tile::kIsNarrow) {
      log2_tree = min(log2_tree, log2_parts + Tile::kLog2Warps + 1 + Tile::kSharedLevels);
    }
    leaves = leaves_of(part * Tile::kWarps + warp, log2_parts + Tile::kLog2Warps, log2_tree);
  }

  __device__ __forceinline__ StepRange steps(const LeafRange& of) const {
    StepRange steps = steps_of(of, log2_tree, num_steps, Tile::kLog2Turns);
    steps.begin += first_step;
    steps.end += first_step;
    return steps;
  }
  __device__ __forceinline__ KeyRun run(const DecodeUnit& unit) const {
    return {.sequence = unit.sequence,
            .kv_head = unit.kv_head,
            .len = len,
            .first_key = first_key,
            .steps = steps(leaves)};
  }
};

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
  using Share = WarpShare<Tile, kCluster>;
  const int32_t* seq_len = &p.seq_lens[unit.sequence];
  if constexpr (kAsksEarly<Tile, kCluster>) {
    // While the kernel before still runs: what is read of its results may be old, and is no more
    // than a hint.
    const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    if (block < static_cast<unsigned>(p.early.num_blocks)) {
      const Share hint(p, unit.part, warp, min(__ldcg(seq_len), p.longest));
      if (unit.part >> hint.log2_parts == 0) ring.ask_early(hint.run(unit));
    }
  }
  tile::wait_for_previous(Sm90{});

  const Share share(p, unit.part, warp, __ldcg(seq_len));
  if (unit.part >> share.log2_parts != 0) return;
  const LeafRange mine = share.leaves;
  unit.has_pairs = Tile::kIsNarrow && mine.count == 2;
  const KeyRun run = share.run(unit);
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
  int step = run.steps.begin;
#pragma unroll 1
  for (int i = 0; i < mine.count; ++i) {
    const LeafRange leaf{mine.first + i, 1};
    step = w.take_leaf(step, share.steps(leaf).end, leaf.first % 2 != 0);
    if constexpr (Tile::kIsNarrow) {
      if (mine.count > 1 && i % 2 == 0) leave_sums(w, warp);
      if (mine.count > 2 && i % 2 != 0) {
        fold_pair(w, warp);
        fold_leaf(w, warp, i, mine.count, lowest, higher);
      }
    } else if (mine.count > 1) {
      fold_leaf(w, warp, i, mine.count, lowest, higher);
    }
  }
  __syncthreads();  // the states lie where the rings were
  leave_state(w, warp, unit.has_pairs);
  __syncthreads();
  finish<Q, Tile, kCluster>(p, shared, unit, share.log2_parts);
}

}  // namespace tessera::kernels
