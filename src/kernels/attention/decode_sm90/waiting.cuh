// The states of a warp's leaves that wait for their siblings in the tree.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/attention/decode_sm90/finish.cuh"

namespace tessera::kernels {

inline constexpr int kMostLevels = 5;  // a warp has 32 leaves at most

// Levels of the tree whose states have a place in shared memory. Of four queries
// or fewer half of the lanes have some, so that there is room for twice as many levels; narrow
// tiles count on that already.
template <class Tile>
__host__ __device__ constexpr int shared_levels(int rows) {
  const bool has_half_states = !Tile::kIsNarrow && Tile::kTiles == 1 && rows <= 4;
  return (has_half_states ? 2 : 1) * Tile::kSharedLevels;
}

// How many leaves a warp can have, in powers of two, before it pays to cut: before a state waits in
// memory, unless arithmetic takes more time than memory does.
template <class Tile>
constexpr int log2_waiting_leaves(int rows) {
  if (Tile::kIsGeneral) return Tile::K::kBits == 16 ? 0 : kMostLevels;
  return (Tile::kIsNarrow || Tile::kKeepsLowest ? 1 : 0) + shared_levels<Tile>(rows);
}

// A warp's states of higher levels of the tree in shared memory.
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

// Four queries: an odd leaf's state, in the second half of the columns, behind the even one's in
// the first, whose sums lie in shared memory. The result is in the first half.
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

// The warp's state is of leaf `i` of `count`: it is folded behind the states of earlier leaves that
// wait for it, and waits itself for later ones: of the lowest level in registers, of the next ones
// in shared memory where the tile has room, of others in memory, which costs far more than its
// bytes while keys and values stream. Of codes of four queries it is a pair's state, folded before.
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

}  // namespace tessera::kernels
