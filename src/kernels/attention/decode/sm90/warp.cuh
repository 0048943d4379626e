// What one warp does with its steps: scores, weights by an online softmax, and the product with
// values; a leaf of steps at a time. Nothing here synchronises beyond the warp.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/attention/decode/sm90/newest.cuh"
#include "kernels/attention/decode/sm90/ring.cuh"
#include "kernels/attention/decode/sm90/scores.cuh"
#include "kernels/attention/scores.cuh"
#include "kernels/attention/softmax.cuh"
#include "tile/convert.cuh"
#include "tile/fragment.cuh"
#include "tile/ptx/movmatrix.cuh"

namespace tessera::kernels::decode_sm90 {

// A thread holds columns 2 * (lane % 4) and the next of each tile of 8 queries.
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

// Scale and low of a thread's keys: keys lane / 4 + 8 * i, from its first box on.
template <int kBoxes>
struct RowScales {
  float scale[2 * kBoxes], low[2 * kBoxes];
};
template <int kNumScales, int kBoxes>
__device__ __forceinline__ RowScales<kBoxes> row_scales(uint32_t scales, int first_box, int lane) {
  RowScales<kBoxes> s;
  const uint32_t at = scales + 2 * kNumScales * (kBoxKeys * first_box + lane / 4);
  TESSERA_UNROLL
  for (int i = 0; i < 2 * kBoxes; ++i) {
    uint32_t word =
        tile::ptx::load_shared(at + 16 * kNumScales * i - (kNumScales == 1 ? lane / 4 % 2 * 2 : 0));
    if constexpr (kNumScales == 1) word >>= lane / 4 % 2 * 16;
    const float2 pair = tile::pair_to_floats<F16>(word);
    s.scale[i] = pair.x;
    s.low[i] = pair.y;
  }
  return s;
}

// Zeroes values that no query sees, before the window or after the last key: pages may hold NaN
// there, and zero times NaN is not zero.
template <class Tile>
__device__ __forceinline__ void clear_values(const KeyRun& run, int step, uint32_t values,
                                             int lane) {
  const int first = run.first_key - step * kStepKeys, end = run.len - step * kStepKeys;
  if (first <= 0 && end >= kStepKeys) return;
  constexpr int kRowChunks = Tile::kRowBytes / 16;
#pragma unroll 1
  for (int i = lane; i < kStepKeys * kRowChunks; i += 32) {
    const int row = i / kRowChunks;
    if (row >= first && row < end) continue;
    const uint32_t at = values + row / kBoxKeys * Tile::kBoxBytes;
    tile::ptx::store_shared(at + place<Tile>(row % kBoxKeys, i % kRowChunks), uint4{});
  }
  __syncwarp();
  tile::ptx::fence_proxy_async_shared();  // TMA writes here next
}

// The weight of a code is multiplied by the scale of its row and rounded to f16; the boost keeps
// small weights away from subnormals.
template <class Tile>
inline constexpr float kBoost = Tile::K::kBits == 16 ? 1.0f : 16.0f;

// Weights of a step as the B operand of the product with values: weights[i][t] belongs to the 16
// keys of a box. What the lows add goes to the offset of `state`.
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
          // The same rounded weight for both terms, so that code * scale and low cancel exactly.
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
        // After the transpose rows 0 to 3 belong to the first box and 4 to 7 to the second, so
        // columns 4 to 7 process the second box first.
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

// Which element of a head a row of the product with values is.
template <class Tile>
__device__ __forceinline__ int o_element(int step, int upper, int g) {
  if constexpr (Tile::K::kBits == 16) return 16 * step + 8 * upper + g;
  if constexpr (Tile::K::kBits == 8) return 16 * step + 2 * g + upper;
  return 32 * (step / 2) + 4 * g + 2 * (step % 2) + upper;
}

// weights[i][t] belongs to the 16 keys of a box: `first_box`, then the other. If values have a
// base, `weight_sum` gets the sums of the weights exactly as they are multiplied.
template <class Tile>
__device__ __forceinline__ void multiply_values(uint32_t half, int first_box, int lane,
                                                const uint32_t (&weights)[2][Tile::kTiles][2],
                                                WarpState<Tile>& state,
                                                float (&weight_sum)[Tile::kTiles][4]) {
  using V = typename Tile::V;
  using T = typename V::T;
  constexpr int kD = Tile::kD, kTiles = Tile::kTiles, kBits = V::kBits;
  constexpr int kSteps = 16 / kBits;
  // The order of the four matrices: 16-bit values first by 8 elements, codes first by 8 keys.
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
  static constexpr int kFirstOther = Tile::kIsNarrow ? 2 : 4;  // distance of lanes with one column
  // Weights are relative to a reference that is replaced once they grow beyond kCap, as in prefill.
  static constexpr float kCap = 16.0f;
  static constexpr float kNoReference = -kMinusInfinity;  // makes every weight 0

  const Sm90DecodeParams& p;
  StepRing<Tile>& ring;
  Sm90DecodeShared<Tile>& shared;
  int lane;
  KeyRun run;
  int first_row;  // of the queries that share this head's keys
  QueryOperands<Tile> q;
  float q_unit[kTiles][2];  // of integer queries
  float q_sum[kTiles][2];   // sum of a query's elements, which the lows of keys multiply
  float scale[kTiles][2];   // from products to exponents of two
  // Four queries fill half of the columns. Odd leaves use the other half, so that the state of the
  // even leaf before them stays in place.
  bool is_odd;
  WarpState<Tile> state;
  float weight_sum[kTiles][4];  // if values have a base: sums of the rounded weights
  // General instances: which of the newest keys a column's query sees, as bits, and the first key
  // it sees.
  uint32_t seen[kTiles][2];
  int first_seen[kTiles][2];
  NewestOf<Tile> newest;

  // The first of the two columns of a tile whose scores this thread has, and the step's box that
  // its own box `box` is.
  __device__ __forceinline__ int column() const { return 2 * (lane % (Tile::kIsNarrow ? 2 : 4)); }
  __device__ __forceinline__ int box_of(int box) const {
    return Tile::kIsNarrow ? lane % 4 / 2 : box;
  }

  // Whether the current leaf's sums are in this thread's columns.
  __device__ __forceinline__ bool has_columns() const {
    return !Tile::kIsNarrow || (lane % 4 >= 2) == is_odd;
  }

  __device__ int head_of(int row) const {
    return run.kv_head * p.group + row - token_of(p, row) * p.group;
  }

  // The query of column lane / 4 of a tile; with four queries both halves of the columns have them.
  // Columns after the last query repeat it; their results are not stored.
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
      if constexpr (Tile::kAppends) newest.rotate(q[t]);
      TESSERA_UNROLL
      for (int j = 0; j < 2; ++j) {
        scale[t][j] = score_scale;
        if constexpr (K::kHasIntegerKeys && !Tile::kIsGeneral) scale[t][j] *= q_unit[t][j];
      }
      if constexpr (Tile::kIsGeneral) find_seen(t);
    }
  }

  // Four lanes make a query's integers; the lanes that hold its scores need their unit and sum.
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

  // Applies row scales and masks: products become scores, -inf for keys that a query does not see.
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

  // Softcap, ALiBi, windows and several tokens, for column j of tile t.
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

  // The largest score of column j, over all lanes.
  __device__ __forceinline__ float top_of(const Scores& x, int t, int j) const {
    float top = fmaxf(x[0][t][j], x[0][t][2 + j]);
    if constexpr (kBoxes == 2) top = fmaxf(top, fmaxf(x[1][t][j], x[1][t][2 + j]));
    TESSERA_UNROLL
    for (int lanes = kFirstOther; lanes < 32; lanes *= 2) {
      top = fmaxf(top, __shfl_xor_sync(~0u, top, lanes));
    }
    return top;
  }

  // Sets the reference of columns that have none yet; nothing has been summed against it.
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

  // Replaces the reference, from the step's scores, in columns whose weights are too large.
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

  // Scales of a step's values; 0 for keys that no query sees.
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

  // In plain instances every query sees the first key of a leaf. (Instances for scales by column
  // have no register left to remember which step is the first.)
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
    if constexpr (Tile::kAppends) newest.put_key(step, ring.keys(), lane);
    if constexpr (K::kHasIntegerKeys) {
      multiply_integer_keys<Tile>(ring.keys(), lane, q, x);
    } else {
      StepScores<Tile> products;
      multiply(products, step);
      share_out<Tile>(products, lane, x);
    }
    finish_scores(x, step);
    ring.release_keys(step);
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
    if constexpr (Tile::kAppends) newest.put_value(step, ring.values(), lane);
    uint32_t weights[2][kTiles][2];
    pack_weights<Tile>(y, value_rows(step), lane, is_odd, state, weights);
    clear_values<Tile>(run, step, ring.values(), lane);
    multiply_values<Tile>(ring.values(), Tile::kIsNarrow && is_odd ? 1 : 0, lane, weights, state,
                          weight_sum);
    ring.release_values(step);
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

  // Computes the state of the run's steps in [begin, end): a leaf of the tree. Returns the next
  // step.
  __device__ __forceinline__ int take_leaf(int begin, int end, bool is_odd_leaf) {
    is_odd = is_odd_leaf;
    clear();
    int step = begin;
#pragma unroll 1
    for (; step < end; step = run.after(step, 1)) take_step(step, step == begin);
    finish_leaf();
    return step;
  }

  // Sums over the lanes, and subtracts bases and the even codes that odd ones include.
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

}  // namespace tessera::kernels::decode_sm90
