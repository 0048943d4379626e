// What one warp does with its steps: scores by the tensor cores, with keys where a product has rows
// and queries where it has columns, so that eight queries fill it; weights; values.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/attention/decode_sm90/columns.cuh"
#include "kernels/attention/decode_sm90/load.cuh"
#include "kernels/attention/decode_sm90/products.cuh"
#include "kernels/attention/decode_sm90/rows.cuh"
#include "kernels/attention/scores.cuh"
#include "tile/convert.cuh"
#include "tile/fragment.cuh"
#include "tile/ptx/movmatrix.cuh"

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
  // What a score is worth when it has been finished.
  static constexpr float kScoreUnit = K::kHasColumns ? 1.0f : K::kKeyUnit;
  // Weights against a reference that is set anew when they grow beyond kCap, as in prefill. Of
  // codes they are multiplied with the scale of their row, in f16, and boosted so that small ones
  // keep their digits.
  static constexpr float kCap = 16.0f;
  static constexpr float kBoost = kBits == 16 ? 1.0f : 16.0f;

  const Sm90DecodeParams& p;
  StepRing<Tile>& ring;
  Sm90DecodeShared<Tile>& shared;
  int lane;
  KeyRun run;
  int first_row;  // of the queries that share this head's keys
  float scale;    // of scores, to powers of two
  QueryOperands<Tile> q;
  float q_sum[kTiles][2];  // of a query's elements, over K::kKeyUnit: for lows and bases of keys
  WarpState<Tile> state;
  float weight_sum[kTiles][4];  // for bases: weights as they were multiplied
  float low[kTiles][2];         // sums of weights times lows of values
  bool has_reference[kTiles][2];
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

  __device__ int head_of(int row) const {
    return run.kv_head * p.group + row - token_of(p, row) * p.group;
  }

  // Where query lane / 4 of a tile begins. Columns behind the last query repeat it: what becomes of
  // them is not stored.
  __device__ const Q* query_of(int t) const {
    const int row = min(first_row + 8 * t + lane / 4, p.rows - 1);
    return static_cast<const Q*>(p.q) + run.sequence * p.q_strides.batch +
           token_of(p, row) * p.q_strides.row + head_of(row) * p.q_strides.head;
  }

  __device__ void load_q() {
    TESSERA_UNROLL
    for (int t = 0; t < kTiles; ++t) {
      make_q<Tile>(query_of(t), lane, q[t]);
      if constexpr (kHasLowK || K::kKeyBase != 0) add_up_q<Tile>(q[t], lane, q_sum[t]);
      if constexpr (Tile::kIsGeneral) find_seen(t);
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
            if constexpr (K::kKeyBase != 0) {
              x[box][t][i] = fmaf(-K::kKeyBase, q_sum[t][i % 2], x[box][t][i]);
            }
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
    const float k_scale = scale_of_k();
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
    if (p.k_head_scales == nullptr) return kScoreUnit;
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
          y[box][t][i] = exp2_approx(fmaf(x[box][t][i], scale, -state.reference[t][i % 2]));
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
        if (has_reference[t][j] || top == kMinusInfinity) continue;
        state.reference[t][j] = top * scale;
        has_reference[t][j] = true;
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
        const float reference = top * scale;
        const float factor = exp2_approx(state.reference[t][j] - reference);
        state.reference[t][j] = reference;
        state.sum[t][j] *= factor;
        low[t][j] *= factor;
        weight_sum[t][j] *= factor;
        TESSERA_UNROLL
        for (int d = 0; d < kD / 16; ++d) {
          state.o[t][d][j] *= factor;
          state.o[t][d][2 + j] *= factor;
        }
      }
    }
  }

  // The weights of a step as operands.
  __device__ __forceinline__ void pack(Scores& y, uint32_t (&weights)[2][kTiles][2], int step) {
    RowScales<kBoxes> rows;
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
    TESSERA_UNROLL
    for (int box = 0; box < kBoxes; ++box) {
      TESSERA_UNROLL
      for (int t = 0; t < kTiles; ++t) {
        TESSERA_UNROLL
        for (int i = 0; i < 4; ++i) {
          const int key = 2 * box + i / 2;
          float& weight = y[box][t][i];
          if constexpr (kHasLowV) {
            // The same weight for both terms, so that code * scale and -low take each other off.
            weight = tile::to_float(tile::from_float<T>(weight));
            low[t][i % 2] = fmaf(weight, rows.low[key], low[t][i % 2]);
          }
          if constexpr (V::kNumScales > 0) {
            weight *= rows.scale[key] * kBoost;
          } else if constexpr (kBits != 16) {
            weight *= kBoost;
          }
        }
        TESSERA_UNROLL
        for (int r = 0; r < 2; ++r) {
          weights[box][t][r] = tile::ptx::movmatrix_trans(
              tile::pack_pair<T>(y[box][t][2 * r], y[box][t][2 * r + 1]));
          // Rows 4 to 7 of what was turned are the second box's; columns 4 to 7 are nobody's.
          if constexpr (Tile::kIsNarrow) {
            weights[1][t][r] = __shfl_xor_sync(~0u, weights[0][t][r], 16);
          }
        }
      }
    }
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

  __device__ __forceinline__ void take_step(int step) {
    StepScores<Tile> products;
    Scores x, y;
    float sums[kTiles][2];
    ring.wait_for_keys();
    multiply(products, step);
    share_out<Tile>(products, lane, x);
    finish_scores(x, step);
    ring.leave_keys(step);
    bool lacks_one = false, is_too_large = false;
    TESSERA_UNROLL
    for (int t = 0; t < kTiles; ++t) {
      lacks_one = lacks_one || !has_reference[t][0] || !has_reference[t][1];
    }
    if (__any_sync(~0u, lacks_one)) refer_first(x);
    exponentiate(x, y, sums);
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
    pack(y, weights, step);
    clear_values<Tile>(run, step, ring.values(), lane);
    multiply_values<Tile>(ring.values(), lane, weights, state, weight_sum);
    ring.leave_values(step);
  }

  __device__ __forceinline__ void clear() {
    TESSERA_UNROLL
    for (int t = 0; t < kTiles; ++t) {
      TESSERA_UNROLL
      for (int j = 0; j < 2; ++j) {
        state.reference[t][j] = 0;
        state.sum[t][j] = 0;
        low[t][j] = 0;
        weight_sum[t][j] = weight_sum[t][2 + j] = 0;
        has_reference[t][j] = false;
      }
      TESSERA_UNROLL
      for (int d = 0; d < kD / 16; ++d) {
        TESSERA_UNROLL
        for (int i = 0; i < 4; ++i) state.o[t][d][i] = 0;
      }
    }
  }

  // Steps [begin, end) from nothing: a leaf of the tree.
  __device__ __forceinline__ void take_leaf(int begin, int end) {
    clear();
    if (begin == end) return;
#pragma unroll 1
    for (int step = begin; step < end; ++step) take_step(step);
    finish_leaf();
  }

  // Sums over the lanes, and what bases and lows add.
  __device__ __forceinline__ void finish_leaf() {
    TESSERA_UNROLL
    for (int t = 0; t < kTiles; ++t) {
      TESSERA_UNROLL
      for (int j = 0; j < 2; ++j) {
        TESSERA_UNROLL
        for (int lanes = kFirstOther; lanes < 32; lanes *= 2) {
          state.sum[t][j] += __shfl_xor_sync(~0u, state.sum[t][j], lanes);
          if constexpr (kHasLowV) low[t][j] += __shfl_xor_sync(~0u, low[t][j], lanes);
        }
        if constexpr (V::value_unit(0) != 1) {
          float offset = kHasLowV ? low[t][j] * kBoost : 0.0f;
          if constexpr (kHasBase) offset = fmaf(-V::kValueBase, weight_sum[t][j], offset);
          TESSERA_UNROLL
          for (int d = 0; d < kD / 16; ++d) {
            TESSERA_UNROLL
            for (int upper = 0; upper < 2; ++upper) {
              float& o = state.o[t][d][2 * upper + j];
              o = fmaf(o, V::value_unit(upper), offset);
            }
          }
        }
      }
    }
  }
};

}  // namespace tessera::kernels
