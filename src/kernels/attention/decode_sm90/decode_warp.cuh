// What one warp does with its steps: scores by the tensor cores, with keys where a product has rows
// and queries where it has columns, so that eight queries fill it; weights; values.
// SPDX-License-Identifier: MIT
#pragma once

#include <type_traits>

#include "kernels/attention/decode_sm90/columns.cuh"
#include "kernels/attention/decode_sm90/load.cuh"
#include "kernels/attention/decode_sm90/products.cuh"
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
  // What a score is worth when it has been finished.
  static constexpr float kScoreUnit = K::kHasColumns ? 1.0f : K::kKeyUnit;
  // Weights against a reference that is set anew when they grow beyond the cap, as in prefill. Of
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
  float cap[kTiles][2];         // kCap; negative where there is no reference yet
  // General instances: the newest keys a column's query sees, as bits, the first key of them all,
  // and its position.
  uint32_t seen[kTiles][2];
  int first_seen[kTiles][2];

  __device__ int head_of(int row) const {
    return run.kv_head * p.group + row - token_of(p, row) * p.group;
  }

  // Where query lane / 4 of a tile begins; null: there is none.
  __device__ const Q* query_of(int t) const {
    const int row = first_row + 8 * t + lane / 4;
    if (row >= p.rows) return nullptr;
    return static_cast<const Q*>(p.q) + run.sequence * p.q_strides.batch +
           token_of(p, row) * p.q_strides.row + head_of(row) * p.q_strides.head;
  }

  __device__ void load_q() {
    TESSERA_UNROLL
    for (int t = 0; t < kTiles; ++t) {
      const Q* query = query_of(t);
      const bool is_query = query != nullptr;
      order_q<Tile>(is_query ? query : static_cast<const Q*>(p.q), lane, q[t]);
      float sum = 0;
      TESSERA_UNROLL
      for (int step = 0; step < kD / 16; ++step) {
        TESSERA_UNROLL
        for (int reg = 0; reg < 2; ++reg) {
          uint32_t& word = q[t][step][reg];
          if (!is_query) word = 0;
          const float2 pair = tile::pair_to_floats<Q>(word);
          // The second eight codes of a step are worth 16 times the first.
          constexpr bool kIsEven = kBits == 4 && !K::kHasColumns;
          const float share = kIsEven && reg == 1 ? 0x1p-4f : 1.0f;
          if constexpr (!std::is_same_v<Q, T> || kIsEven) {
            word = tile::pack_pair<T>(pair.x * share, pair.y * share);
          }
          sum += pair.x + pair.y;
        }
      }
      if constexpr (kHasLowK || K::kKeyBase != 0) spread(sum / K::kKeyUnit, q_sum[t]);
      if constexpr (Tile::kIsGeneral) find_seen(t);
    }
  }

  // The four parts of a value of query lane / 4, added, where its column is.
  __device__ void spread(float part, float (&columns)[2]) const {
    part += __shfl_xor_sync(~0u, part, 1);
    part += __shfl_xor_sync(~0u, part, 2);
    TESSERA_UNROLL
    for (int j = 0; j < 2; ++j) columns[j] = __shfl_sync(~0u, part, 8 * (lane % 4) + 4 * j);
  }

  __device__ void find_seen(int t) {
    TESSERA_UNROLL
    for (int j = 0; j < 2; ++j) {
      const int row = min(first_row + 8 * t + 2 * (lane % 4) + j, p.rows - 1);
      const int token = token_of(p, row);
      seen[t][j] = p.tree != nullptr ? static_cast<uint32_t>(p.tree[run.sequence * p.q_len + token])
                                     : (2u << token) - 1;
      first_seen[t][j] = max(run.len - p.q_len + token + 1 - p.window, 0);
    }
  }

  // Scale and low of this thread's keys: lane / 4 + 8 * i, over a step.
  struct RowScales {
    float scale[4], low[4];
  };
  template <int kNumScales>
  __device__ __forceinline__ RowScales row_scales(uint32_t scales) const {
    RowScales s;
    const uint32_t at = scales + 2 * kNumScales * (lane / 4);
    TESSERA_UNROLL
    for (int i = 0; i < 4; ++i) {
      uint32_t word = tile::ptx::load_shared(at + 16 * kNumScales * i -
                                             (kNumScales == 1 ? lane / 4 % 2 * 2 : 0));
      if constexpr (kNumScales == 1) word >>= lane / 4 % 2 * 16;
      const float2 pair = tile::pair_to_floats<F16>(word);
      s.scale[i] = pair.x;
      s.low[i] = pair.y;
    }
    return s;
  }

  // Products become scores in powers of two before the scale, -inf where a query does not see.
  __device__ __forceinline__ void finish_scores(float (&x)[2][kTiles][4], int step) const {
    if constexpr (K::kNumScales > 0) {
      const RowScales rows = row_scales<K::kNumScales>(ring.key_scales());
      TESSERA_UNROLL
      for (int box = 0; box < 2; ++box) {
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
    const int first_key = step * kStepKeys + lane / 4;
    if constexpr (Tile::kIsGeneral) {
      TESSERA_UNROLL
      for (int t = 0; t < kTiles; ++t) {
        TESSERA_UNROLL
        for (int j = 0; j < 2; ++j) modify(x, t, j, first_key);
      }
    } else {
      if ((step + 1) * kStepKeys <= run.len) return;
      TESSERA_UNROLL
      for (int box = 0; box < 2; ++box) {
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
  __device__ __forceinline__ void modify(float (&x)[2][kTiles][4], int t, int j,
                                         int first_key) const {
    const int row = min(first_row + 8 * t + 2 * (lane % 4) + j, p.rows - 1);
    const ScoreRule<T> rule(p.scores, head_of(row));
    const int newest = run.len - p.q_len;  // the first of the newest keys
    const int position = newest + token_of(p, row);
    const float k_scale = scale_of_k();
    TESSERA_UNROLL
    for (int i = 0; i < 4; ++i) {
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

  __device__ __forceinline__ void exponentiate(const float (&x)[2][kTiles][4],
                                               float (&y)[2][kTiles][4], float (&sums)[kTiles][2]) {
    TESSERA_UNROLL
    for (int t = 0; t < kTiles; ++t) {
      TESSERA_UNROLL
      for (int box = 0; box < 2; ++box) {
        TESSERA_UNROLL
        for (int i = 0; i < 4; ++i) {
          y[box][t][i] = exp2_approx(fmaf(x[box][t][i], scale, -state.reference[t][i % 2]));
        }
      }
      TESSERA_UNROLL
      for (int j = 0; j < 2; ++j) {
        sums[t][j] = (y[0][t][j] + y[0][t][2 + j]) + (y[1][t][j] + y[1][t][2 + j]);
      }
    }
  }

  // References anew, from a step's scores, for columns whose weights are too large or that have
  // none.
  __device__ __forceinline__ void refer(const float (&x)[2][kTiles][4],
                                        const float (&sums)[kTiles][2]) {
    TESSERA_UNROLL
    for (int t = 0; t < kTiles; ++t) {
      TESSERA_UNROLL
      for (int j = 0; j < 2; ++j) {
        float top = fmaxf(fmaxf(x[0][t][j], x[0][t][2 + j]), fmaxf(x[1][t][j], x[1][t][2 + j]));
        float most = sums[t][j];
        TESSERA_UNROLL
        for (int lanes = 4; lanes < 32; lanes *= 2) {
          top = fmaxf(top, __shfl_xor_sync(~0u, top, lanes));
          most = fmaxf(most, __shfl_xor_sync(~0u, most, lanes));
        }
        if (!(most > cap[t][j]) || top == kMinusInfinity) continue;
        const float reference = top * scale;
        const float factor = cap[t][j] < 0 ? 0.0f : exp2_approx(state.reference[t][j] - reference);
        state.reference[t][j] = reference;
        cap[t][j] = kCap;
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
  __device__ __forceinline__ void pack(float (&y)[2][kTiles][4], uint32_t (&weights)[2][kTiles][2],
                                       int step) {
    RowScales rows;
    if constexpr (V::kNumScales > 0) {
      rows = row_scales<V::kNumScales>(ring.value_scales());
      if (step * kStepKeys < run.first_key || (step + 1) * kStepKeys > run.len) {
        TESSERA_UNROLL
        for (int i = 0; i < 4; ++i) {
          const int key = step * kStepKeys + lane / 4 + 8 * i;
          if (key < run.first_key || key >= run.len) rows.scale[i] = rows.low[i] = 0;
        }
      }
    }
    TESSERA_UNROLL
    for (int box = 0; box < 2; ++box) {
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
        }
      }
    }
  }

  // Values that no query sees, before the window or behind the last key: zero times what a page may
  // hold there need not be zero.
  __device__ __forceinline__ void clear_values(int step) const {
    const int first = run.first_key - step * kStepKeys, end = run.len - step * kStepKeys;
    if (first <= 0 && end >= kStepKeys) return;
    constexpr int kRowChunks = Tile::kRowBytes / 16;
#pragma unroll 1
    for (int i = lane; i < kStepKeys * kRowChunks; i += 32) {
      const int row = i / kRowChunks;
      if (row >= first && row < end) continue;
      const uint32_t at = ring.values() + row / kBoxKeys * Tile::kBoxBytes;
      tile::ptx::store_shared(at + place<Tile>(row % kBoxKeys, i % kRowChunks), uint4{});
    }
    __syncwarp();
    tile::ptx::fence_proxy_async_shared();  // the copy engine writes here next
  }

  __device__ __forceinline__ void multiply(float (&x)[2][kTiles][4], int step) {
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
    float x[2][kTiles][4], y[2][kTiles][4], sums[kTiles][2];
    ring.wait_for_keys();
    multiply(x, step);
    finish_scores(x, step);
    ring.leave_keys(step);
    exponentiate(x, y, sums);
    bool is_too_large = false;
    TESSERA_UNROLL
    for (int t = 0; t < kTiles; ++t) {
      is_too_large = is_too_large || sums[t][0] > cap[t][0] || sums[t][1] > cap[t][1];
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
    clear_values(step);
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
        cap[t][j] = -1;
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
        for (int lanes = 4; lanes < 32; lanes *= 2) {
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
