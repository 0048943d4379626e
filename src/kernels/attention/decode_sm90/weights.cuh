// Weights of a step's keys as the second operand of the product with values.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/attention/decode_sm90/products.cuh"
#include "kernels/attention/decode_sm90/rows.cuh"
#include "tile/convert.cuh"
#include "tile/ptx/movmatrix.cuh"

namespace tessera::kernels {

// Weights of codes are multiplied with the scale of their row, in f16, and boosted so that small
// ones keep their digits.
template <class Tile>
inline constexpr float kBoost = Tile::K::kBits == 16 ? 1.0f : 16.0f;

// weights[i][t]: of the 16 keys of a box, as multiply_values takes them. What lows add goes to the
// offset of `state`.
template <class Tile>
__device__ __forceinline__ void pack_weights(LaneScores<Tile>& y,
                                             const RowScales<Tile::kBoxesOfLane>& rows, int lane,
                                             bool is_odd, WarpState<Tile>& state,
                                             uint32_t (&weights)[2][Tile::kTiles][2]) {
  using V = typename Tile::V;
  using T = typename V::T;
  TESSERA_UNROLL
  for (int box = 0; box < Tile::kBoxesOfLane; ++box) {
    TESSERA_UNROLL
    for (int t = 0; t < Tile::kTiles; ++t) {
      TESSERA_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int key = 2 * box + i / 2;
        float& weight = y[box][t][i];
        if constexpr (V::kNumScales == 2) {
          // The same weight for both terms, so that code * scale and -low take each other off.
          weight = tile::to_float(tile::from_float<T>(weight));
          state.offset[t][i % 2] = fmaf(weight, rows.low[key], state.offset[t][i % 2]);
        }
        if constexpr (V::kNumScales > 0) {
          weight *= rows.scale[key] * kBoost<Tile>;
        } else if constexpr (kBoost<Tile> != 1) {
          weight *= kBoost<Tile>;
        }
      }
      TESSERA_UNROLL
      for (int r = 0; r < 2; ++r) {
        weights[box][t][r] =
            tile::ptx::movmatrix_trans(tile::pack_pair<T>(y[box][t][2 * r], y[box][t][2 * r + 1]));
        // Rows 0 to 3 of what was turned are the first box's and 4 to 7 the second's, which
        // columns 4 to 7 therefore meet first.
        if constexpr (Tile::kIsNarrow) {
          const bool is_used = (lane >= 16) == is_odd;
          const uint32_t other = __shfl_xor_sync(~0u, weights[0][t][r], 16);
          weights[1][t][r] = is_used ? other : 0;
          if (!is_used) weights[0][t][r] = 0;
        }
      }
    }
  }
}

}  // namespace tessera::kernels
