// What the warps of a block, and the blocks of a tile, found: folded in a fixed order.
// SPDX-License-Identifier: MIT
//
// A state is what is known of a row after some keys: the largest score, and relative to it the sum
// of weights and that of weighted values. States of different keys become one where each is
// multiplied by e to the distance of its maximum from the largest of all.
#pragma once

#include "kernels/attention/decode_portable/keys.cuh"
#include "kernels/attention/online_softmax.cuh"
#include "tile/convert.cuh"
#include "tile/reduce.cuh"

namespace tessera::kernels {

// The states of a block's warps, one for each row.
template <int kRows>
struct DecodeStates {
  float max[kDecodeWarps][kRows];
  float sum[kDecodeWarps][kRows];
  float o[kDecodeWarps][kRows][kDecodeMostDim];
};

__device__ __forceinline__ float state_factor(float max, const SoftmaxRow& total) {
  return exp2_approx((max - total.finite_max()) * kLog2e);
}

// One row of a block, over its warps.
template <int kRows>
class FoldedRow {
 public:
  __device__ FoldedRow(const DecodeStates<kRows>& states, int row) : states_(states), row_(row) {
    TESSERA_UNROLL
    for (int w = 0; w < kDecodeWarps; ++w) total_.max = fmaxf(total_.max, states.max[w][row]);
    TESSERA_UNROLL
    for (int w = 0; w < kDecodeWarps; ++w) {
      factors_[w] = state_factor(states.max[w][row], total_);
      total_.sum = fmaf(states.sum[w][row], factors_[w], total_.sum);
    }
  }
  __device__ const SoftmaxRow& total() const { return total_; }
  __device__ float value(int column) const {
    float sum = 0.0f;
    TESSERA_UNROLL
    for (int w = 0; w < kDecodeWarps; ++w) {
      sum = fmaf(states_.o[w][row_][column], factors_[w], sum);
    }
    return sum;
  }

 private:
  const DecodeStates<kRows>& states_;
  int row_;
  SoftmaxRow total_;
  float factors_[kDecodeWarps];
};

// What the blocks of one tile leave in scratch memory, a piece each.
class DecodePieces {
 public:
  __device__ DecodePieces(const DecodeParams& p, int tile, int most_pieces)
      : row_dim_(p.head_dim),
        num_rows_(p.rows.rows_per_tile),
        states_(p.states + int64_t{tile} * most_pieces * num_rows_ * 2),
        partials_(p.partials + int64_t{tile} * most_pieces * num_rows_ * row_dim_) {}

  __device__ float* state(int piece, int row) const {
    return states_ + (piece * num_rows_ + row) * 2;
  }
  __device__ float* partial(int piece, int row) const {
    return partials_ + (piece * num_rows_ + row) * row_dim_;
  }

 private:
  int row_dim_;
  int num_rows_;
  float* states_;
  float* partials_;
};

// One row of a tile, over its pieces; of all lanes of a warp, each with every 32nd column.
class MergedRow {
  static constexpr int kColumns = kDecodeMostDim / 32;

 public:
  __device__ MergedRow(const DecodePieces& pieces, int num_pieces, int row, int head_dim) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    SoftmaxRow mine;
    if (lane < num_pieces) {
      mine.max = __ldcg(pieces.state(lane, row));
      mine.sum = __ldcg(pieces.state(lane, row) + 1);
    }
    total_.max = tile::warp_reduce<tile::Max>(mine.max);
    const float factor = state_factor(mine.max, total_);
    total_.sum = tile::warp_reduce<tile::Sum>(mine.sum * factor);
    TESSERA_UNROLL
    for (int c = 0; c < kColumns; ++c) values_[c] = 0.0f;
#pragma unroll 4
    for (int piece = 0; piece < num_pieces; ++piece) {
      const float* partial = pieces.partial(piece, row);
      const float its_factor = __shfl_sync(~0u, factor, piece);
      TESSERA_UNROLL
      for (int c = 0; c < kColumns; ++c) {
        const int column = lane + 32 * c;
        if (column < head_dim) {
          values_[c] = fmaf(__ldcg(partial + column), its_factor, values_[c]);
        }
      }
    }
  }
  __device__ const SoftmaxRow& total() const { return total_; }
  // Of column lane + 32 c.
  template <class F>
  __device__ void for_each_value(int head_dim, const F& f) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    TESSERA_UNROLL
    for (int c = 0; c < kColumns; ++c) {
      if (lane + 32 * c < head_dim) f(lane + 32 * c, values_[c]);
    }
  }

 private:
  SoftmaxRow total_;
  float values_[kColumns];
};

}  // namespace tessera::kernels
