// How states become results: leaves are folded within a warp, warps through shared memory, blocks
// through their cluster or through global memory. The order is always the tree's (softmax.cuh folds
// two states), so no result depends on which warp or block computed what.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/attention/decode/sm90/warp.cuh"
#include "kernels/attention/last_block.cuh"
#include "tile/ptx/cluster.cuh"

namespace tessera::kernels::decode_sm90 {

// What a block works on: queries that share a KV head, and one part of the keys.
struct DecodeUnit {
  int sequence;
  int kv_head;
  int first_row;
  int part;
  // Every warp has two leaves, in the two halves of a product's columns.
  bool has_pairs = false;
};

// Stores a thread's elements of column j: of 4-bit formats four neighbours at a time, of 8-bit two.
template <class Tile>
__device__ __forceinline__ void leave_elements(float* row, const float (&o)[Tile::kD / 16][4],
                                               int j, int g) {
  TESSERA_UNROLL
  for (int d = 0; d < Tile::kD / 16; ++d) {
    const auto element = [&](int step, int upper) {
      return o[step][2 * upper + j] * Tile::V::value_unit(upper);
    };
    float* at = row + o_element<Tile>(d, 0, g);
    if constexpr (Tile::K::kBits == 4) {
      if (d % 2 == 1) continue;
      *reinterpret_cast<float4*>(at) = {element(d, 0), element(d, 1), element(d + 1, 0),
                                        element(d + 1, 1)};
    } else if constexpr (Tile::K::kBits == 8) {
      *reinterpret_cast<float2*>(at) = {element(d, 0), element(d, 1)};
    } else {
      at[0] = element(d, 0);
      row[o_element<Tile>(d, 1, g)] = element(d, 1);
    }
  }
}

// Stores references, sums and offsets of a warp in shared memory, in rows from `first` on.
template <class Q, class Tile>
__device__ __forceinline__ void leave_sums(const DecodeWarp<Q, Tile>& w, int warp, int first = 0) {
  if (w.lane >= (Tile::kIsNarrow ? 2 : 4)) return;
  TESSERA_UNROLL
  for (int t = 0; t < Tile::kTiles; ++t) {
    TESSERA_UNROLL
    for (int j = 0; j < 2; ++j) {
      const int row = first + 8 * t + w.column() + j;
      w.shared.reference[warp][row] = w.state.reference[t][j];
      w.shared.sum[warp][row] = w.state.sum[t][j];
      if constexpr (Tile::kHasOffset) w.shared.offset[warp][row] = w.state.offset[t][j];
    }
  }
}

// A pair's odd leaf takes the four rows after the even one's, whose sums are stored already.
inline constexpr int kOddRows = 4;
template <class Q, class Tile>
__device__ void leave_state(const DecodeWarp<Q, Tile>& w, int warp, bool is_pair) {
  leave_sums(w, warp, is_pair ? kOddRows : 0);
  if (!is_pair && !w.has_columns()) return;
  const int first = is_pair && w.lane % 4 >= 2 ? kOddRows : 0;
  TESSERA_UNROLL
  for (int t = 0; t < Tile::kTiles; ++t) {
    TESSERA_UNROLL
    for (int j = 0; j < 2; ++j) {
      float* row = w.shared.o[warp][first + 8 * t + w.column() + j];
      leave_elements<Tile>(row, w.state.o[t], j, w.lane / 4);
    }
  }
}

template <class Tile>
using TileState = QuadState<Tile::kHasOffset>;

template <class Tile>
__device__ __forceinline__ TileState<Tile> load_state(const Sm90DecodeShared<Tile>& shared, int w,
                                                      int row, int quad) {
  return {shared.reference[w][row], shared.sum[w][row],
          Tile::kHasOffset ? shared.offset[w][row] : 0.0f,
          *reinterpret_cast<const float4*>(&shared.o[w][row][4 * quad])};
}
template <class Tile>
__device__ TileState<Tile> fold_warps(const Sm90DecodeShared<Tile>& shared, const DecodeUnit& unit,
                                      int row, int quad) {
  TileState<Tile> states[Tile::kWarps];
  TESSERA_UNROLL
  for (int w = 0; w < Tile::kWarps; ++w) {
    states[w] = load_state(shared, w, row, quad);
    if constexpr (Tile::kIsNarrow) {
      if (unit.has_pairs) states[w] = fold(states[w], load_state(shared, w, kOddRows + row, quad));
    }
  }
  return fold_all(states);
}

// Normalises and stores four elements of row `row` of the unit.
template <class Q, class Tile>
__device__ void store_quad(const Sm90DecodeParams& p, const DecodeUnit& unit, int row, int quad,
                           TileState<Tile> state) {
  const int query = unit.first_row + row;
  const int token = token_of(p, query);
  const int head = unit.kv_head * p.group + query - token * p.group;
  if (p.scores.sinks != nullptr) {
    state = fold(state, TileState<Tile>{p.scores.sinks[head] * kLog2e, 1.0f, 0.0f, {}});
  }
  const float v_scale =
      p.v_head_scales == nullptr ? 1.0f : p.v_head_scales[unit.kv_head * p.v_head_scale_step];
  // A NaN is not an empty sum: it must reach the result and the lse, by which a merge weighs it.
  const float factor = state.sum == 0 ? 0.0f : v_scale / (kBoost<Tile> * state.sum);
  Q* out = static_cast<Q*>(p.out) + unit.sequence * p.out_strides.batch +
           token * p.out_strides.row + head * p.out_strides.head + 4 * quad;
  const auto result = [&](float x) { return (Tile::kHasOffset ? x + state.offset : x) * factor; };
  *reinterpret_cast<uint2*>(out) = {tile::pack_pair<Q>(result(state.o.x), result(state.o.y)),
                                    tile::pack_pair<Q>(result(state.o.z), result(state.o.w))};
  if (p.lse == nullptr || quad != 0) return;
  p.lse[unit.sequence * p.lse_strides.batch + token * p.lse_strides.row +
        head * p.lse_strides.head] =
      state.sum == 0 ? kMinusInfinity : (state.reference + __log2f(state.sum)) * kLn2;
}

// Calls f(row, quad) for quad number `first` of the block's queries and every `step`-th after it.
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

// Four elements of row `at` of the partial states in global memory.
template <class Tile>
__device__ __forceinline__ void leave_part(const Sm90DecodeParams& p, int64_t at, int quad,
                                           const TileState<Tile>& state) {
  p.partial_o[at * Tile::kQuads + quad] = state.o;
  if (quad == 0) p.partial_sums[at] = {state.reference, state.sum, state.offset, 0.0f};
}
template <class Tile>
__device__ __forceinline__ TileState<Tile> load_part(const Sm90DecodeParams& p, int64_t at,
                                                     int quad) {
  const float4 sums = __ldcg(&p.partial_sums[at]);
  return {sums.x, sums.y, sums.z, __ldcg(&p.partial_o[at * Tile::kQuads + quad])};
}

template <class Q, class Tile, int kParts>
__device__ void fold_parts(const Sm90DecodeParams& p, const DecodeUnit& unit, int64_t first_part) {
  for_quads<Tile>(p, unit, [&](int row, int quad) {
    TileState<Tile> states[kParts];
    TESSERA_UNROLL
    for (int i = 0; i < kParts; ++i) {
      states[i] = load_part<Tile>(p, (first_part + i) * Tile::kRows + row, quad);
    }
    store_quad<Q, Tile>(p, unit, row, quad, fold_all(states));
  });
}

// Through global memory: every block stores its states and takes a ticket; the last one folds them.
template <class Q, class Tile>
__device__ void finish_by_ticket(const Sm90DecodeParams& p, Sm90DecodeShared<Tile>& shared,
                                 const DecodeUnit& unit, int log2_parts) {
  const int64_t unit_idx = static_cast<int64_t>(blockIdx.z) * gridDim.y + blockIdx.y;
  const int num_parts = 1 << log2_parts;
  const int64_t first_part = unit_idx << p.log2_parts;
  for_quads<Tile>(p, unit, [&](int row, int quad) {
    leave_part<Tile>(p, (first_part + unit.part) * Tile::kRows + row, quad,
                     fold_warps(shared, unit, row, quad));
  });
  if (!is_last_block(&p.tickets[unit_idx], num_parts, shared.is_last)) return;
  switch (num_parts) {
    case 2: return fold_parts<Q, Tile, 2>(p, unit, first_part);
    case 4: return fold_parts<Q, Tile, 4>(p, unit, first_part);
    case 8: return fold_parts<Q, Tile, 8>(p, unit, first_part);
    default: return fold_parts<Q, Tile, 16>(p, unit, first_part);
  }
}

// Through the shared memory of the cluster: every block finishes some of the elements.
template <class Q, class Tile, int kCluster>
__device__ void finish_by_cluster(const Sm90DecodeParams& p, Sm90DecodeShared<Tile>& shared,
                                  const DecodeUnit& unit) {
  using namespace tile::ptx;
  // A thread stores the fold of its quad over warp 0's, which no other thread reads.
  for_quads<Tile>(p, unit, [&](int row, int quad) {
    const TileState<Tile> state = fold_warps(shared, unit, row, quad);
    *reinterpret_cast<float4*>(&shared.o[0][row][4 * quad]) = state.o;
    if (quad == 0) shared.node[row] = {state.reference, state.sum, state.offset, 0.0f};
  });
  cluster_arrive();
  cluster_wait();
  const int first = static_cast<int>(cluster_rank() * Tile::kThreads + threadIdx.x);
  for_quads<Tile>(p, unit, first, Tile::kThreads * kCluster, [&](int row, int quad) {
    TileState<Tile> states[kCluster];
    TESSERA_UNROLL
    for (int c = 0; c < kCluster; ++c) {
      const uint32_t node = mapa(shared_address(&shared.node[row]), c);
      states[c] = {__uint_as_float(load_cluster(node)), __uint_as_float(load_cluster(node + 4)),
                   Tile::kHasOffset ? __uint_as_float(load_cluster(node + 8)) : 0.0f,
                   load_cluster_v4(mapa(shared_address(&shared.o[0][row][4 * quad]), c))};
    }
    store_quad<Q, Tile>(p, unit, row, quad, fold_all(states));
  });
  cluster_arrive_relaxed();  // a block may not exit while others read its memory
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
      store_quad<Q, Tile>(p, unit, row, quad, fold_warps(shared, unit, row, quad));
    });
  }
}

inline constexpr int kMostLevels = 5;  // a warp has at most 32 leaves

// Levels of the tree whose waiting states fit in shared memory. With four queries or fewer only
// half of the lanes have a state, so there is room for twice as many levels; narrow tiles are sized
// for that already.
template <class Tile>
__host__ __device__ constexpr int shared_levels(int rows) {
  const bool has_half_states = !Tile::kIsNarrow && Tile::kTiles == 1 && rows <= 4;
  return (has_half_states ? 2 : 1) * Tile::kSharedLevels;
}

// Most leaves of a warp, in powers of two, for which no state waits in global memory. General
// instances of quantised formats are limited by arithmetic and may use that too.
template <class Tile>
constexpr int log2_waiting_leaves(int rows) {
  if (Tile::kIsGeneral) return Tile::K::kBits == 16 ? 0 : kMostLevels;
  return (Tile::kIsNarrow || Tile::kKeepsLowest ? 1 : 0) + shared_levels<Tile>(rows);
}

// A warp's waiting states in shared memory, by level of the tree.
template <class Tile>
class WaitingStates {
 public:
  __device__ WaitingStates(Sm90DecodeShared<Tile>& shared, int warp, int lane, int rows)
      : is_half_(Tile::kIsNarrow || (Tile::kTiles == 1 && rows <= 4)),
        has_columns_(!is_half_ || lane % 4 < 2) {
    first_ = shared.waiting[warp] + (is_half_ ? lane / 4 * 2 + lane % 2 : lane);
  }

  __device__ __forceinline__ void keep(const WarpState<Tile>& state, int level) const {
    if (!has_columns_) return;
    TESSERA_UNROLL
    for (int t = 0; t < Tile::kTiles; ++t) {
      float4* to = place(level, t);
      TESSERA_UNROLL
      for (int d = 0; d < kSteps; ++d) {
        const float(&o)[4] = state.o[t][d];
        to[d * pitch()] = {o[0], o[1], o[2], o[3]};
      }
      const float(&reference)[2] = state.reference[t], (&sum)[2] = state.sum[t];
      to[kSteps * pitch()] = {reference[0], reference[1], sum[0], sum[1]};
      if constexpr (Tile::kHasOffset) {
        to[(kSteps + 1) * pitch()] = {state.offset[t][0], state.offset[t][1], 0.0f, 0.0f};
      }
    }
  }

  __device__ __forceinline__ WarpState<Tile> kept(int level) const {
    WarpState<Tile> state{};
    TESSERA_UNROLL
    for (int t = 0; t < Tile::kTiles; ++t) {
      const float4* from = place(level, t);
      TESSERA_UNROLL
      for (int d = 0; d < kSteps; ++d) {
        const float4 o = from[d * pitch()];
        state.o[t][d][0] = o.x;
        state.o[t][d][1] = o.y;
        state.o[t][d][2] = o.z;
        state.o[t][d][3] = o.w;
      }
      const float4 sums = from[kSteps * pitch()];
      state.reference[t][0] = sums.x;
      state.reference[t][1] = sums.y;
      state.sum[t][0] = sums.z;
      state.sum[t][1] = sums.w;
      if constexpr (Tile::kHasOffset) {
        const float4 offsets = from[(kSteps + 1) * pitch()];
        state.offset[t][0] = offsets.x;
        state.offset[t][1] = offsets.y;
      }
    }
    return state;
  }

 private:
  static constexpr int kSteps = Tile::kD / 16;
  __device__ __forceinline__ int pitch() const { return is_half_ ? 16 : 32; }
  __device__ __forceinline__ float4* place(int level, int t) const {
    const int index = (level - Tile::kFirstSharedLevel) * Tile::kTiles + t;
    return first_ + index * Tile::kStateQuads * pitch();
  }

  bool is_half_, has_columns_;
  float4* first_;
};

// Narrow tiles: folds an odd leaf's state, in the second half of the columns, with the even one's
// in the first half, whose sums lie in shared memory. The result is in the first half.
template <class Q, class Tile>
__device__ __forceinline__ void fold_pair(DecodeWarp<Q, Tile>& w, int warp) {
  static_assert(Tile::kTiles == 1);
  WarpState<Tile>& state = w.state;
  __syncwarp();
  Fold f[2];
  TESSERA_UNROLL
  for (int j = 0; j < 2; ++j) {
    const int row = w.column() + j;
    const float sum = w.shared.sum[warp][row];
    f[j] = fold(w.shared.reference[warp][row], sum, state.reference[0][j], state.sum[0][j]);
    state.reference[0][j] = f[j].reference;
    state.sum[0][j] = f[j](sum, state.sum[0][j]);
    if constexpr (Tile::kHasOffset) {
      state.offset[0][j] = f[j](w.shared.offset[warp][row], state.offset[0][j]);
    }
  }
  TESSERA_UNROLL
  for (int d = 0; d < Tile::kD / 16; ++d) {
    TESSERA_UNROLL
    for (int i = 0; i < 4; ++i) {
      float& o = state.o[0][d][i];
      o = f[i % 2](o, __shfl_xor_sync(~0u, o, 2));
    }
  }
  w.is_odd = false;
  __syncwarp();
}

// Adds the state of leaf `i` of `count`: folds it with the states of earlier leaves that wait for
// it, then lets it wait for later ones: the lowest level in registers, the next levels in shared
// memory if the tile has room, the rest in local memory, which costs far more than its bytes while
// keys and values stream. In narrow tiles the state is that of a folded pair.
template <class Q, class Tile>
__device__ __forceinline__ void fold_leaf(DecodeWarp<Q, Tile>& w, int warp, int i, int count,
                                          WarpState<Tile>& lowest,
                                          WarpState<Tile> (&higher)[kMostLevels]) {
  int level = 0;
  if constexpr (Tile::kIsNarrow) {
    level = 1;
  } else if constexpr (Tile::kKeepsLowest) {
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
    for (; level < Tile::kFirstSharedLevel + shared_levels<Tile>(w.p.rows); ++level) {
      if ((i >> level & 1) == 0) {
        if (i + 1 < count) waiting.keep(w.state, level);
        return;
      }
      w.state.fold_behind(waiting.kept(level));
    }
  }
  if constexpr (!Tile::kIsNarrow) {
#pragma unroll 1
    for (; i >> level & 1; ++level) w.state.fold_behind(higher[level]);
    if (i + 1 < count) higher[level] = w.state;
  }
}

}  // namespace tessera::kernels::decode_sm90
