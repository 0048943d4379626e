// What one warp does with its steps: scores by the tensor cores, with keys where a product has rows
// and queries where it has columns, so that eight queries fill it; weights; values.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/attention/decode_sm90/columns.cuh"
#include "kernels/attention/decode_sm90/integer_keys.cuh"
#include "kernels/attention/decode_sm90/load.cuh"
#include "kernels/attention/decode_sm90/products.cuh"
#include "kernels/attention/decode_sm90/rows.cuh"
#include "kernels/attention/decode_sm90/weights.cuh"
#include "kernels/attention/scores.cuh"
#include "tile/convert.cuh"
#include "tile/fragment.cuh"

namespace tessera::kernels {

template <class Q, class Tile>
struct DecodeWarp {
  using K = typename Tile::K;
  using V = typename Tile::V;
  using T = typename K::T;
  static constexpr int kD = Tile::kD;
  static constexpr int kTiles = Tile::kTiles;
  static constexpr int kBits = K::kBits;
  static constexpr bool kHasLowK = K::kNumScales == 2;
  static constexpr bool kHasLowV = V::kNumScales == 2;
  static constexpr bool kHasBase = V::kValueBase != 0;
  static constexpr int kBoxes = Tile::kBoxesOfLane;
  using Scores = LaneScores<Tile>;
  static constexpr int kFirstOther = Tile::kIsNarrow ? 2 : 4;  // lane with the same columns
  // Weights against a reference that is set anew when they grow beyond kCap, as in prefill.
  static constexpr float kCap = 16.0f;
  static constexpr float kNoReference = -kMinusInfinity;  // makes every weight 0

  const Sm90DecodeParams& p;
  StepRing<Tile>& ring;
  Sm90DecodeShared<Tile>& shared;
  int lane;
  KeyRun run;
  int first_row;  // of the queries that share this head's keys
  QueryOperands<Tile> q;
  float q_unit[kTiles][2];  // of integers
  float q_sum[kTiles][2];   // of a query's elements, for lows of keys
  float scale[kTiles][2];   // of scores, to powers of two
  // Four queries fill half of the columns: odd leaves use the other half, where they leave the
  // state of the even leaf before them as it is.
  bool is_odd;
  WarpState<Tile> state;
  float weight_sum[kTiles][4];  // for bases: weights as they were multiplied
  // General instances: the newest keys a column's query sees, as bits, the first key of them all,
  // and its position.
  uint32_t seen[kTiles][2];
  int first_seen[kTiles][2];

  // The first of its two columns of a tile, and the box of `box` of its own, where a thread has
  // scores.
  __device__ __forceinline__ int column() const { return 2 * (lane % (Tile::kIsNarrow ? 2 : 4)); }
  __device__ __forceinline__ int box_of(int box) const {
    return Tile::kIsNarrow ? lane % 4 / 2 : box;
  }

  // Whether the leaf's results are in this thread's columns.
  __device__ __forceinline__ bool has_columns() const {
    return !Tile::kIsNarrow || (lane % 4 >= 2) == is_odd;
  }

  __device__ int head_of(int row) const {
    return run.kv_head * p.group + row - token_of(p, row) * p.group;
  }

  // Where query lane / 4 of a tile begins; of four queries both halves of the columns have one.
  // Columns behind the last query repeat it: what becomes of them is not stored.
  __device__ const Q* query_of(int t) const {
    const int row = min(first_row + 8 * t + lane / 4 % (Tile::kIsNarrow ? 4 : 8), p.rows - 1);
    return static_cast<const Q*>(p.q) + run.sequence * p.q_strides.batch +
           token_of(p, row) * p.q_strides.row + head_of(row) * p.q_strides.head;
  }

  __device__ void load_q() {
    const float score_scale = Tile::kIsGeneral ? kLog2e : p.scores.scale * kLog2e * scale_of_k();
    TESSERA_UNROLL
    for (int t = 0; t < kTiles; ++t) {
      if constexpr (K::kHasIntegerKeys) {
        load_integer_q(t);
      } else {
        make_q<Tile>(query_of(t), lane, q[t]);
      }
      TESSERA_UNROLL
      for (int j = 0; j < 2; ++j) {
        scale[t][j] = score_scale;
        if constexpr (K::kHasIntegerKeys && !Tile::kIsGeneral) scale[t][j] *= q_unit[t][j];
      }
      if constexpr (Tile::kIsGeneral) find_seen(t);
    }
  }

  // Four lanes make a query's integers; those that have its scores need what they are worth.
  __device__ __forceinline__ void load_integer_q(int t) {
    const IntegerQuery integers = make_integer_q<Tile>(query_of(t), lane, q[t]);
    TESSERA_UNROLL
    for (int j = 0; j < 2; ++j) {
      const int from = 4 * (column() + j);
      q_unit[t][j] = __shfl_sync(~0u, integers.unit, from);
      if constexpr (kHasLowK) q_sum[t][j] = __shfl_sync(~0u, integers.sum, from);
    }
  }

  __device__ void find_seen(int t) {
    TESSERA_UNROLL
    for (int j = 0; j < 2; ++j) {
      const int row = min(first_row + 8 * t + column() + j, p.rows - 1);
      const int token = token_of(p, row);
      seen[t][j] = p.tree != nullptr ? static_cast<uint32_t>(p.tree[run.sequence * p.q_len + token])
                                     : (2u << token) - 1;
      first_seen[t][j] = max(run.len - p.q_len + token + 1 - p.window, 0);
    }
  }

  // Products become scores in powers of two before the scale, -inf where a query does not see.
  __device__ __forceinline__ void finish_scores(Scores& x, int step) const {
    if constexpr (K::kNumScales > 0) {
      const auto rows = row_scales<K::kNumScales, kBoxes>(ring.key_scales(), box_of(0), lane);
      TESSERA_UNROLL
      for (int box = 0; box < kBoxes; ++box) {
        TESSERA_UNROLL
        for (int t = 0; t < kTiles; ++t) {
          TESSERA_UNROLL
          for (int i = 0; i < 4; ++i) {
            const int key = 2 * box + i / 2;
            x[box][t][i] *= rows.scale[key];
            if constexpr (kHasLowK) {
              x[box][t][i] = fmaf(rows.low[key], q_sum[t][i % 2], x[box][t][i]);
            }
          }
        }
      }
    }
    const int first_key = step * kStepKeys + kBoxKeys * box_of(0) + lane / 4;
    if constexpr (Tile::kIsGeneral) {
      TESSERA_UNROLL
      for (int t = 0; t < kTiles; ++t) {
        TESSERA_UNROLL
        for (int j = 0; j < 2; ++j) modify(x, t, j, first_key);
      }
    } else {
      if ((step + 1) * kStepKeys <= run.len) return;
      TESSERA_UNROLL
      for (int box = 0; box < kBoxes; ++box) {
        TESSERA_UNROLL
        for (int t = 0; t < kTiles; ++t) {
          TESSERA_UNROLL
          for (int i = 0; i < 4; ++i) {
            if (first_key + 16 * box + 8 * (i / 2) >= run.len) x[box][t][i] = kMinusInfinity;
          }
        }
      }
    }
  }

  // Softcap, ALiBi, windows, several tokens: column j of tile t.
  __device__ __forceinline__ void modify(Scores& x, int t, int j, int first_key) const {
    const int row = min(first_row + 8 * t + column() + j, p.rows - 1);
    const ScoreRule<T> rule(p.scores, head_of(row));
    const int newest = run.len - p.q_len;  // the first of the newest keys
    const int position = newest + token_of(p, row);
    const float k_scale = K::kHasIntegerKeys ? q_unit[t][j] : scale_of_k();
    TESSERA_UNROLL
    for (int i = 0; i < 2 * kBoxes; ++i) {
      const int key = first_key + 8 * i;
      float& y = x[i / 2][t][2 * (i % 2) + j];
      y = rule(y * k_scale, position - key);
      const bool is_seen = key < newest || (key < run.len && (seen[t][j] >> (key - newest) & 1));
      if (!is_seen || key < first_seen[t][j]) y = kMinusInfinity;
    }
  }

  __device__ float scale_of_k() const {
    if (p.k_head_scales == nullptr) return 1.0f;
    return p.k_head_scales[run.kv_head * p.k_head_scale_step];
  }

  __device__ __forceinline__ void exponentiate(const Scores& x, Scores& y,
                                               float (&sums)[kTiles][2]) {
    TESSERA_UNROLL
    for (int t = 0; t < kTiles; ++t) {
      TESSERA_UNROLL
      for (int box = 0; box < kBoxes; ++box) {
        TESSERA_UNROLL
        for (int i = 0; i < 4; ++i) {
          y[box][t][i] =
              exp2_approx(fmaf(x[box][t][i], scale[t][i % 2], -state.reference[t][i % 2]));
        }
      }
      TESSERA_UNROLL
      for (int j = 0; j < 2; ++j) {
        sums[t][j] = y[0][t][j] + y[0][t][2 + j];
        if constexpr (kBoxes == 2) sums[t][j] += y[1][t][j] + y[1][t][2 + j];
      }
    }
  }

  // The largest score of column j over the lanes.
  __device__ __forceinline__ float top_of(const Scores& x, int t, int j) const {
    float top = fmaxf(x[0][t][j], x[0][t][2 + j]);
    if constexpr (kBoxes == 2) top = fmaxf(top, fmaxf(x[1][t][j], x[1][t][2 + j]));
    TESSERA_UNROLL
    for (int lanes = kFirstOther; lanes < 32; lanes *= 2) {
      top = fmaxf(top, __shfl_xor_sync(~0u, top, lanes));
    }
    return top;
  }

  // The first references of columns that have none, before which there is nothing to multiply.
  __device__ __forceinline__ void refer_first(const Scores& x) {
    TESSERA_UNROLL
    for (int t = 0; t < kTiles; ++t) {
      TESSERA_UNROLL
      for (int j = 0; j < 2; ++j) {
        const float top = top_of(x, t, j);
        if (state.reference[t][j] != kNoReference || top == kMinusInfinity) continue;
        state.reference[t][j] = top * scale[t][j];
      }
    }
  }

  // References anew, from a step's scores, for columns whose weights are too large.
  __device__ __forceinline__ void refer(const Scores& x, const float (&sums)[kTiles][2]) {
    TESSERA_UNROLL
    for (int t = 0; t < kTiles; ++t) {
      TESSERA_UNROLL
      for (int j = 0; j < 2; ++j) {
        const float top = top_of(x, t, j);
        float most = sums[t][j];
        TESSERA_UNROLL
        for (int lanes = kFirstOther; lanes < 32; lanes *= 2) {
          most = fmaxf(most, __shfl_xor_sync(~0u, most, lanes));
        }
        if (!(most > kCap)) continue;
        const float reference = top * scale[t][j];
        const float factor = exp2_approx(state.reference[t][j] - reference);
        state.reference[t][j] = reference;
        state.sum[t][j] *= factor;
        state.offset[t][j] *= factor;
        if (!has_columns()) continue;
        weight_sum[t][j] *= factor;
        TESSERA_UNROLL
        for (int d = 0; d < kD / 16; ++d) {
          state.o[t][d][j] *= factor;
          state.o[t][d][2 + j] *= factor;
        }
      }
    }
  }

  // Scales of a step's values; of keys that nobody sees they are 0.
  __device__ __forceinline__ RowScales<kBoxes> value_rows(int step) const {
    RowScales<kBoxes> rows{};
    if constexpr (V::kNumScales > 0) {
      rows = row_scales<V::kNumScales, kBoxes>(ring.value_scales(), box_of(0), lane);
      if (step * kStepKeys < run.first_key || (step + 1) * kStepKeys > run.len) {
        TESSERA_UNROLL
        for (int i = 0; i < 2 * kBoxes; ++i) {
          const int key = step * kStepKeys + kBoxKeys * box_of(0) + lane / 4 + 8 * i;
          if (key < run.first_key || key >= run.len) rows.scale[i] = rows.low[i] = 0;
        }
      }
    }
    return rows;
  }

  __device__ __forceinline__ void multiply(StepScores<Tile>& x, int step) {
    if constexpr (!K::kHasColumns) {
      multiply_keys<Tile>(ring.keys(), lane, q, x);
    } else if ((step + 1) * kStepKeys < run.len) {
      multiply_columns<Tile>(ring.keys(), ring.key_scales(), lane, q, x);
    } else {
      const Q* queries[kTiles];
      TESSERA_UNROLL
      for (int t = 0; t < kTiles; ++t) queries[t] = query_of(t);
      tile::ptx::mbarrier_wait(tile::ptx::shared_address(&shared.tail_full), 0);
      multiply_tail<Q, Tile>(tile::ptx::shared_address(shared.tail), lane, queries, x);
    }
  }

  // Every query sees the first key of a leaf, unless something hides it. (Where columns have scales
  // no register is left to know which step is the first.)
  __device__ __forceinline__ bool lacks_reference(bool is_first) const {
    if constexpr (!Tile::kIsGeneral && !K::kHasColumns) return is_first;
    bool lacks_one = false;
    TESSERA_UNROLL
    for (int t = 0; t < kTiles; ++t) {
      lacks_one = lacks_one || state.reference[t][0] == kNoReference ||
                  state.reference[t][1] == kNoReference;
    }
    return __any_sync(~0u, lacks_one);
  }

  __device__ __forceinline__ void take_step(int step, bool is_first) {
    Scores x, y;
    float sums[kTiles][2];
    ring.wait_for_keys();
    if constexpr (K::kHasIntegerKeys) {
      multiply_integer_keys<Tile>(ring.keys(), lane, q, x);
    } else {
      StepScores<Tile> products;
      multiply(products, step);
      share_out<Tile>(products, lane, x);
    }
    finish_scores(x, step);
    ring.leave_keys(step);
    if (lacks_reference(is_first)) refer_first(x);
    exponentiate(x, y, sums);
    bool is_too_large = false;
    TESSERA_UNROLL
    for (int t = 0; t < kTiles; ++t) {
      is_too_large = is_too_large || sums[t][0] > kCap || sums[t][1] > kCap;
    }
    if (__any_sync(~0u, is_too_large)) {
      refer(x, sums);
      exponentiate(x, y, sums);
    }
    TESSERA_UNROLL
    for (int t = 0; t < kTiles; ++t) {
      TESSERA_UNROLL
      for (int j = 0; j < 2; ++j) state.sum[t][j] += sums[t][j];
    }
    ring.wait_for_values();
    uint32_t weights[2][kTiles][2];
    pack_weights<Tile>(y, value_rows(step), lane, is_odd, state, weights);
    clear_values<Tile>(run, step, ring.values(), lane);
    multiply_values<Tile>(ring.values(), Tile::kIsNarrow && is_odd ? 1 : 0, lane, weights, state,
                          weight_sum);
    ring.leave_values(step);
  }

  __device__ __forceinline__ void clear() {
    TESSERA_UNROLL
    for (int t = 0; t < kTiles; ++t) {
      TESSERA_UNROLL
      for (int j = 0; j < 2; ++j) {
        state.reference[t][j] = kNoReference;
        state.sum[t][j] = 0;
        state.offset[t][j] = 0;
      }
      if (!has_columns()) continue;
      TESSERA_UNROLL
      for (int i = 0; i < 4; ++i) {
        weight_sum[t][i] = 0;
        TESSERA_UNROLL
        for (int d = 0; d < kD / 16; ++d) state.o[t][d][i] = 0;
      }
    }
  }

  // The run's steps from `begin` on, below `end`, from nothing: a leaf of the tree. Returns the
  // step after them.
  __device__ __forceinline__ int take_leaf(int begin, int end, bool is_odd_leaf) {
    is_odd = is_odd_leaf;
    clear();
    int step = begin;
#pragma unroll 1
    for (; step < end; step = run.after(step, 1)) take_step(step, step == begin);
    finish_leaf();
    return step;
  }

  // Sums over the lanes, and what bases and neighbours take off.
  __device__ __forceinline__ void finish_leaf() {
    TESSERA_UNROLL
    for (int t = 0; t < kTiles; ++t) {
      if (V::kOddHoldsEven && has_columns()) {
        TESSERA_UNROLL
        for (int d = 0; d < kD / 16; ++d) {
          state.o[t][d][2] -= state.o[t][d][0];
          state.o[t][d][3] -= state.o[t][d][1];
        }
      }
      TESSERA_UNROLL
      for (int j = 0; j < 2; ++j) {
        float& offset = state.offset[t][j];
        TESSERA_UNROLL
        for (int lanes = kFirstOther; lanes < 32; lanes *= 2) {
          state.sum[t][j] += __shfl_xor_sync(~0u, state.sum[t][j], lanes);
          if constexpr (kHasLowV) offset += __shfl_xor_sync(~0u, offset, lanes);
        }
        if constexpr (kHasLowV) offset *= kBoost<Tile>;
        if constexpr (kHasBase) {
          static_assert(!kHasLowV);
          const float other =
              Tile::kIsNarrow ? __shfl_xor_sync(~0u, weight_sum[t][j], 2) : weight_sum[t][j];
          offset = -V::kValueBase * (has_columns() ? weight_sum[t][j] : other);
        }
      }
    }
  }
};

}  // namespace tessera::kernels
