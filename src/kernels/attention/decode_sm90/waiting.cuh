// The states of a warp's leaves that wait for their siblings in the tree.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/attention/decode_sm90/decode_warp.cuh"

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

}  // namespace tessera::kernels
