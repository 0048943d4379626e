// From the states of warps to results: over the warps of a block through shared memory, over
// blocks through their cluster, or through memory, by the last block to arrive.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/attention/decode_sm90/decode_warp.cuh"
#include "kernels/attention/last_block.cuh"
#include "tile/ptx/cluster.cuh"

namespace tessera::kernels {

// The queries that share a head's keys, and which of the blocks that do.
struct DecodeUnit {
  int sequence;
  int kv_head;
  int first_row;
  int part;
};

// A thread's elements of column j: of four bits four side by side, of eight two.
template <class Tile>
__device__ __forceinline__ void leave_elements(float* row, const float (&o)[Tile::kD / 16][4],
                                               int j, int g) {
  TESSERA_UNROLL
  for (int d = 0; d < Tile::kD / 16; ++d) {
    float* at = row + o_element<Tile>(d, 0, g);
    if constexpr (Tile::K::kBits == 4) {
      if (d % 2 == 1) continue;
      *reinterpret_cast<float4*>(at) = {o[d][j], o[d][2 + j], o[d + 1][j], o[d + 1][2 + j]};
    } else if constexpr (Tile::K::kBits == 8) {
      *reinterpret_cast<float2*>(at) = {o[d][j], o[d][2 + j]};
    } else {
      at[0] = o[d][j];
      row[o_element<Tile>(d, 1, g)] = o[d][2 + j];
    }
  }
}

template <class Q, class Tile>
__device__ void leave_state(Sm90DecodeShared<Tile>& shared, const DecodeWarp<Q, Tile>& w,
                            int warp) {
  TESSERA_UNROLL
  for (int t = 0; t < Tile::kTiles; ++t) {
    TESSERA_UNROLL
    for (int j = 0; j < 2; ++j) {
      const int row = 8 * t + 2 * (w.lane % 4) + j;
      leave_elements<Tile>(shared.o[warp][row], w.state.o[t], j, w.lane / 4);
      if (w.lane >= 4) continue;
      shared.reference[warp][row] = w.state.reference[t][j];
      shared.sum[warp][row] = w.state.sum[t][j];
    }
  }
}

template <class Tile>
__device__ QuadState fold_warps(const Sm90DecodeShared<Tile>& shared, int row, int quad) {
  QuadState states[Tile::kWarps];
  TESSERA_UNROLL
  for (int w = 0; w < Tile::kWarps; ++w) {
    states[w] = {shared.reference[w][row], shared.sum[w][row],
                 *reinterpret_cast<const float4*>(&shared.o[w][row][4 * quad])};
  }
  return fold_all(states);
}

// Four elements of a result, at `row` of the unit.
template <class Q, class Tile>
__device__ void store_quad(const Sm90DecodeParams& p, const DecodeUnit& unit, int row, int quad,
                           QuadState state) {
  const int query = unit.first_row + row;
  const int token = token_of(p, query);
  const int head = unit.kv_head * p.group + query - token * p.group;
  if (p.scores.sinks != nullptr) {
    state = fold(state, QuadState{p.scores.sinks[head] * kLog2e, 1.0f, {}});
  }
  const float v_scale =
      p.v_head_scales == nullptr ? 1.0f : p.v_head_scales[unit.kv_head * p.v_head_scale_step];
  const float factor = state.sum > 0 ? v_scale / (DecodeWarp<Q, Tile>::kBoost * state.sum) : 0.0f;
  Q* out = static_cast<Q*>(p.out) + unit.sequence * p.out_strides.batch +
           token * p.out_strides.row + head * p.out_strides.head + 4 * quad;
  *reinterpret_cast<uint2*>(out) = {tile::pack_pair<Q>(state.o.x * factor, state.o.y * factor),
                                    tile::pack_pair<Q>(state.o.z * factor, state.o.w * factor)};
  if (p.lse == nullptr || quad != 0) return;
  p.lse[unit.sequence * p.lse_strides.batch + token * p.lse_strides.row +
        head * p.lse_strides.head] =
      state.sum > 0 ? (state.reference + __log2f(state.sum)) * kLn2 : kMinusInfinity;
}

// Calls f(row, quad) for the block's quads of rows that are queries, those of number `first` and
// every `step`-th after it.
template <class Tile, class F>
__device__ __forceinline__ void for_quads(const Sm90DecodeParams& p, const DecodeUnit& unit,
                                          int first, int step, F f) {
  const int quads = min(Tile::kRows, p.rows - unit.first_row) * Tile::kQuads;
  for (int i = first; i < quads; i += step) f(i / Tile::kQuads, i % Tile::kQuads);
}
template <class Tile, class F>
__device__ __forceinline__ void for_quads(const Sm90DecodeParams& p, const DecodeUnit& unit, F f) {
  for_quads<Tile>(p, unit, static_cast<int>(threadIdx.x), Tile::kThreads, f);
}

template <class Q, class Tile, int kParts>
__device__ void fold_parts(const Sm90DecodeParams& p, const DecodeUnit& unit, int64_t first_part) {
  for_quads<Tile>(p, unit, [&](int row, int quad) {
    QuadState states[kParts];
    TESSERA_UNROLL
    for (int part = 0; part < kParts; ++part) {
      const int64_t at = (first_part + part) * Tile::kRows + row;
      const float2 sums = __ldcg(&p.partial_sums[at]);
      states[part] = {sums.x, sums.y, __ldcg(&p.partial_o[at * Tile::kQuads + quad])};
    }
    store_quad<Q, Tile>(p, unit, row, quad, fold_all(states));
  });
}

// Through memory: every block leaves its states and takes a ticket; who takes the last one folds.
template <class Q, class Tile>
__device__ void finish_by_ticket(const Sm90DecodeParams& p, Sm90DecodeShared<Tile>& shared,
                                 const DecodeUnit& unit, int log2_parts) {
  const int64_t unit_idx = static_cast<int64_t>(blockIdx.z) * gridDim.y + blockIdx.y;
  const int num_parts = 1 << log2_parts;
  const int64_t first_part = unit_idx << p.log2_parts;
  for_quads<Tile>(p, unit, [&](int row, int quad) {
    const QuadState state = fold_warps(shared, row, quad);
    const int64_t at = (first_part + unit.part) * Tile::kRows + row;
    p.partial_o[at * Tile::kQuads + quad] = state.o;
    if (quad == 0) p.partial_sums[at] = {state.reference, state.sum};
  });
  if (!is_last_block(&p.tickets[unit_idx], num_parts, shared.is_last)) return;
  switch (num_parts) {
    case 2: return fold_parts<Q, Tile, 2>(p, unit, first_part);
    case 4: return fold_parts<Q, Tile, 4>(p, unit, first_part);
    case 8: return fold_parts<Q, Tile, 8>(p, unit, first_part);
    default: return fold_parts<Q, Tile, 16>(p, unit, first_part);
  }
}

// Through shared memory of the cluster: every block finishes some of the elements.
template <class Q, class Tile, int kCluster>
__device__ void finish_by_cluster(const Sm90DecodeParams& p, Sm90DecodeShared<Tile>& shared,
                                  const DecodeUnit& unit) {
  using namespace tile::ptx;
  // A thread puts the fold of its quad where warp 0's was, which no other thread reads.
  for_quads<Tile>(p, unit, [&](int row, int quad) {
    const QuadState state = fold_warps(shared, row, quad);
    *reinterpret_cast<float4*>(&shared.o[0][row][4 * quad]) = state.o;
    if (quad == 0) shared.node[row] = {state.reference, state.sum};
  });
  cluster_arrive();
  cluster_wait();
  const int first = static_cast<int>(cluster_rank() * Tile::kThreads + threadIdx.x);
  for_quads<Tile>(p, unit, first, Tile::kThreads * kCluster, [&](int row, int quad) {
    QuadState states[kCluster];
    TESSERA_UNROLL
    for (int c = 0; c < kCluster; ++c) {
      const uint32_t node = mapa(shared_address(&shared.node[row]), c);
      states[c] = {__uint_as_float(load_cluster(node)), __uint_as_float(load_cluster(node + 4)),
                   load_cluster_v4(mapa(shared_address(&shared.o[0][row][4 * quad]), c))};
    }
    store_quad<Q, Tile>(p, unit, row, quad, fold_all(states));
  });
  cluster_arrive_relaxed();  // nobody leaves while others read its memory
  cluster_wait();
}

template <class Q, class Tile, int kCluster>
__device__ void finish(const Sm90DecodeParams& p, Sm90DecodeShared<Tile>& shared,
                       const DecodeUnit& unit, int log2_parts) {
  if constexpr (kCluster > 1) {
    finish_by_cluster<Q, Tile, kCluster>(p, shared, unit);
  } else if (log2_parts > 0) {
    finish_by_ticket<Q, Tile>(p, shared, unit, log2_parts);
  } else {
    for_quads<Tile>(p, unit, [&](int row, int quad) {
      store_quad<Q, Tile>(p, unit, row, quad, fold_warps(shared, row, quad));
    });
  }
}

}  // namespace tessera::kernels
