// The two products of decode attention by the tensor cores. Keys, or elements of values, are the
// rows of a product and queries its columns, so that eight queries fill it.
// SPDX-License-Identifier: MIT
#pragma once

#include <type_traits>

#include "kernels/attention/decode_sm90/kv_format.cuh"
#include "kernels/attention/decode_sm90/state.cuh"
#include "kernels/attention/decode_sm90/tile.cuh"
#include "tile/convert.cuh"
#include "tile/fragment.cuh"
#include "tile/ptx/ldmatrix.cuh"
#include "tile/ptx/mma.cuh"
#include "tile/swizzle.cuh"

namespace tessera::kernels {

// A thread holds, of each tile of 8 queries, the columns 2 * (lane % 4) and the one after.
template <class Tile>
struct WarpState {
  float o[Tile::kTiles][Tile::kD / 16][4];
  float reference[Tile::kTiles][2];
  float sum[Tile::kTiles][2];
  float offset[Tile::kTiles][2];  // what every element of o lacks

  // Its own keys come after those of `earlier`.
  __device__ __forceinline__ void fold_behind(const WarpState& earlier) {
    TESSERA_UNROLL
    for (int t = 0; t < Tile::kTiles; ++t) {
      Fold f[2];
      TESSERA_UNROLL
      for (int j = 0; j < 2; ++j) {
        f[j] = fold(earlier.reference[t][j], earlier.sum[t][j], reference[t][j], sum[t][j]);
        reference[t][j] = f[j].reference;
        sum[t][j] = f[j](earlier.sum[t][j], sum[t][j]);
        if constexpr (Tile::kHasOffset) offset[t][j] = f[j](earlier.offset[t][j], offset[t][j]);
      }
      TESSERA_UNROLL
      for (int d = 0; d < Tile::kD / 16; ++d) {
        TESSERA_UNROLL
        for (int i = 0; i < 4; ++i) o[t][d][i] = f[i % 2](earlier.o[t][d][i], o[t][d][i]);
      }
    }
  }
};

// Queries as columns: two registers for every 16 elements, or for 32 as bytes. Integers have two
// parts, which lie side by side where four queries leave columns free.
template <class Tile>
inline constexpr int kQueryParts = Tile::K::kHasIntegerKeys && !Tile::kIsNarrow ? 2 : 1;
template <class Tile>
inline constexpr int kQuerySteps = kQueryParts<Tile>* Tile::kD /
                                   (Tile::K::kHasIntegerKeys ? 32 : 16);
template <class Tile>
using QueryOperands = uint32_t[Tile::kTiles][kQuerySteps<Tile>][2];
// Of the two boxes of a step: accumulator i of a product of 16 keys and 8 queries.
template <class Tile>
using StepScores = float[2][Tile::kTiles][4];

// The elements of a query that go with a thread's codes, in the order in which these are taken
// apart: for 16-bit keys two pairs 8 apart in a step of 16, for bytes 4 in a row, for 4 bits 8 in
// a row in two steps, of which pairs are 4 apart.
template <class Tile, class Q>
__device__ __forceinline__ void order_q(const Q* from, int lane,
                                        uint32_t (&steps)[Tile::kD / 16][2]) {
  constexpr int kD = Tile::kD, kBits = Tile::K::kBits;
  const int c = lane % 4;
  TESSERA_UNROLL
  for (int step = 0; step < kD / 16; ++step) {
    if constexpr (kBits == 16) {
      TESSERA_UNROLL
      for (int reg = 0; reg < 2; ++reg) {
        steps[step][reg] = *reinterpret_cast<const uint32_t*>(from + 16 * step + 8 * reg + 2 * c);
      }
    } else if constexpr (kBits == 8) {
      const uint2 words = *reinterpret_cast<const uint2*>(from + 16 * step + 4 * c);
      steps[step][0] = words.x;
      steps[step][1] = words.y;
    } else if (step % 2 == 0) {
      const uint4 words = *reinterpret_cast<const uint4*>(from + 16 * step + 8 * c);
      steps[step][0] = __byte_perm(words.x, words.z, 0x5410);
      steps[step][1] = __byte_perm(words.x, words.z, 0x7632);
      steps[step + 1][0] = __byte_perm(words.y, words.w, 0x5410);
      steps[step + 1][1] = __byte_perm(words.y, words.w, 0x7632);
    }
  }
}

// A query as operands, in the type of products.
template <class Tile, class Q>
__device__ __forceinline__ void make_q(const Q* from, int lane,
                                       uint32_t (&steps)[Tile::kD / 16][2]) {
  using T = typename Tile::K::T;
  order_q<Tile>(from, lane, steps);
  if constexpr (!std::is_same_v<Q, T>) {
    TESSERA_UNROLL
    for (int i = 0; i < Tile::kD / 8; ++i) {
      uint32_t& word = steps[i / 2][i % 2];
      const float2 pair = tile::pair_to_floats<Q>(word);
      word = tile::pack_pair<T>(pair.x, pair.y);
    }
  }
}

// Which element of a head a row of the second product is.
template <class Tile>
__device__ __forceinline__ int o_element(int step, int upper, int g) {
  if constexpr (Tile::K::kBits == 16) return 16 * step + 8 * upper + g;
  if constexpr (Tile::K::kBits == 8) return 16 * step + 2 * g + upper;
  return 32 * (step / 2) + 4 * g + 2 * (step % 2) + upper;
}

// Where 16 bytes `chunk` of a row of a box lie.
template <class Tile>
__device__ __forceinline__ uint32_t place(int row, int chunk) {
  return chunk / Tile::kPanelChunks * Tile::kPanelSize +
         tile::swizzled(Tile::kSwizzle,
                        row * Tile::kPanelBytes + 16 * (chunk % Tile::kPanelChunks));
}
// The same for a lane's row and chunk 2 * group + upper, from place(row, upper), which it keeps:
// within a panel the swizzle is an xor, so that a constant does it.
template <class Tile>
__device__ __forceinline__ uint32_t place_of_group(uint32_t half, uint32_t lane_place, int box,
                                                   int group) {
  const int in_panel = Tile::kPanelChunks > 1 ? 2 * group % Tile::kPanelChunks : 0;
  const int panel = 2 * group / Tile::kPanelChunks;
  return ((half + lane_place) ^ (16 * in_panel)) + panel * Tile::kPanelSize + box * Tile::kBoxBytes;
}

// scores[box][t][i]: product of key lane / 4 + 8 * (i / 2) of a box and column i % 2.
template <class Tile>
__device__ __forceinline__ void multiply_keys(uint32_t half, int lane, const QueryOperands<Tile>& q,
                                              StepScores<Tile>& scores) {
  using K = typename Tile::K;
  using T = typename K::T;
  constexpr int kD = Tile::kD, kTiles = Tile::kTiles, kBits = K::kBits;
  constexpr int kSteps = 16 / kBits;  // of 16 elements, in what one ldmatrix brings
  // Sums that do not wait for each other, where there are registers for two.
  constexpr int kChains = kD <= 128 ? 2 : 1;
  const uint32_t lane_place = place<Tile>(lane % 16, lane / 16);
  TESSERA_UNROLL
  for (int box = 0; box < 2; ++box) {
    float parts[kTiles][kChains][4] = {};
    TESSERA_UNROLL
    for (int group = 0; group < kD / 16 / kSteps; ++group) {
      uint32_t r[4];
      tile::ptx::ldmatrix(r, place_of_group<Tile>(half, lane_place, box, group));
      TESSERA_UNROLL
      for (int i = 0; i < kSteps; ++i) {
        Operand a;
        K::key_operand(r, i, a);
        const int step = group * kSteps + i;
        TESSERA_UNROLL
        for (int t = 0; t < kTiles; ++t) {
          tile::ptx::mma<T>(parts[t][step % kChains], a, q[t][step]);
        }
      }
    }
    TESSERA_UNROLL
    for (int t = 0; t < kTiles; ++t) {
      TESSERA_UNROLL
      for (int i = 0; i < 4; ++i) {
        scores[box][t][i] = parts[t][0][i] + (kChains > 1 ? parts[t][kChains - 1][i] : 0.0f);
      }
    }
  }
}

// Where only half of the columns are queries, the other half's lanes take the second box's scores.
template <class Tile>
using LaneScores = float[Tile::kBoxesOfLane][Tile::kTiles][4];
template <class Tile>
__device__ __forceinline__ void share_out(const StepScores<Tile>& products, int lane,
                                          LaneScores<Tile>& x) {
  TESSERA_UNROLL
  for (int t = 0; t < Tile::kTiles; ++t) {
    TESSERA_UNROLL
    for (int i = 0; i < 4; ++i) {
      x[0][t][i] = products[0][t][i];
      if constexpr (Tile::kIsNarrow) {
        const float other = __shfl_xor_sync(~0u, products[1][t][i], 2);
        if (lane % 4 >= 2) x[0][t][i] = other;
      } else {
        x[1][t][i] = products[1][t][i];
      }
    }
  }
}

// weights[i][t]: of the 16 keys of a box, of `first_box` and then of the other. `weight_sum` gets
// their sums as they are multiplied, where values have a base.
template <class Tile>
__device__ __forceinline__ void multiply_values(uint32_t half, int first_box, int lane,
                                                const uint32_t (&weights)[2][Tile::kTiles][2],
                                                WarpState<Tile>& state,
                                                float (&weight_sum)[Tile::kTiles][4]) {
  using V = typename Tile::V;
  using T = typename V::T;
  constexpr int kD = Tile::kD, kTiles = Tile::kTiles, kBits = V::kBits;
  constexpr int kSteps = 16 / kBits;
  // Of 16-bit values the two blocks of 8 elements come first, of codes the 16 keys.
  const uint32_t lane_place = kBits == 16 ? place<Tile>(lane % 8 + 8 * (lane / 16), lane / 8 % 2)
                                          : place<Tile>(lane % 16, lane / 16);
  TESSERA_UNROLL
  for (int i_box = 0; i_box < 2; ++i_box) {
    const uint32_t box = half + (i_box ^ first_box) * Tile::kBoxBytes;
    if constexpr (V::kValueBase != 0) {
      constexpr uint32_t kOnes = 0x3c003c00u;
      TESSERA_UNROLL
      for (int t = 0; t < kTiles; ++t) {
        tile::ptx::mma<T>(weight_sum[t], {kOnes, kOnes, kOnes, kOnes}, weights[i_box][t]);
      }
    }
    TESSERA_UNROLL
    for (int group = 0; group < kD / 16 / kSteps; ++group) {
      uint32_t r[4];
      tile::ptx::ldmatrix_trans(r, place_of_group<Tile>(box, lane_place, 0, group));
      TESSERA_UNROLL
      for (int i = 0; i < kSteps; ++i) {
        Operand a;
        V::value_operand(r, i, a);
        TESSERA_UNROLL
        for (int t = 0; t < kTiles; ++t) {
          tile::ptx::mma<T>(state.o[t][group * kSteps + i], a, weights[i_box][t]);
        }
      }
    }
  }
}

}  // namespace tessera::kernels
