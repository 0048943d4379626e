// What one warp does with its steps: scores by the tensor cores, with keys where a product has rows
// and queries where it has columns, so that eight queries fill it; weights; values.
// SPDX-License-Identifier: MIT
#pragma once

#include <type_traits>

#include "kernels/attention/decode_sm90/kv_format.cuh"
#include "kernels/attention/decode_sm90/load.cuh"
#include "kernels/attention/decode_sm90/state.cuh"
#include "kernels/attention/scores.cuh"
#include "tile/convert.cuh"
#include "tile/fragment.cuh"
#include "tile/ptx/ldmatrix.cuh"
#include "tile/ptx/mma.cuh"
#include "tile/ptx/movmatrix.cuh"

namespace tessera::kernels {

// A thread holds, of each tile of 8 queries, the columns 2 * (lane % 4) and the one after.
template <class Tile>
struct WarpState {
  float o[Tile::kTiles][Tile::kD / 16][4];
  float reference[Tile::kTiles][2];
  float sum[Tile::kTiles][2];

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
      }
      TESSERA_UNROLL
      for (int d = 0; d < Tile::kD / 16; ++d) {
        TESSERA_UNROLL
        for (int i = 0; i < 4; ++i) o[t][d][i] = f[i % 2](earlier.o[t][d][i], o[t][d][i]);
      }
    }
  }
};

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
  static constexpr bool kHasBaseK = K::base(0) != 0;
  static constexpr bool kHasBaseV = V::base(0) != 0;
  // Weights against a reference that is set anew when they grow beyond the cap, as in prefill. Of
  // codes they are multiplied with the scale of their row, in f16, and boosted so that small ones
  // keep their digits.
  static constexpr float kCap = 16.0f;
  static constexpr float kBoost = kBits == 16 ? 1.0f : 16.0f;

  const Sm90DecodeParams& p;
  HalfRing<Tile>& ring;
  int lane;
  KeyRun run;
  int first_row;  // of the queries that share this head's keys
  float scale;    // of scores, to powers of two
  uint32_t q[kTiles][kD / 16][2];
  float q_sum[kTiles][2];  // of a query's elements: what lows of keys are multiplied with
  WarpState<Tile> state;
  float weight_sum[kTiles][4];  // of weights as they were multiplied, by the tensor cores as well
  float low[kTiles][2];         // sums of weights times lows of values
  float cap[kTiles][2];         // kCap; negative where there is no reference yet
  // General instances: the newest keys a column's query sees, as bits, the first key of them all,
  // and its position.
  uint32_t seen[kTiles][2];
  int first_seen[kTiles][2];

  // The elements of a query that go with a thread's codes, in the order in which these are taken
  // apart: for 16-bit keys two pairs 8 apart in a step of 16, for bytes 4 in a row, for 4 bits 8 in
  // a row in two steps, of which pairs are 4 apart.
  __device__ __forceinline__ void order_q(const Q* from, uint32_t (&steps)[kD / 16][2]) const {
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
  // Which element of a head a row of the second product is.
  static __device__ int o_element(int step, int upper, int g) {
    if constexpr (kBits == 16) return 16 * step + 8 * upper + g;
    if constexpr (kBits == 8) return 16 * step + 2 * g + upper;
    return 32 * (step / 2) + 4 * g + 2 * (step % 2) + upper;
  }

  __device__ int head_of(int row) const {
    return run.kv_head * p.group + row - token_of(p, row) * p.group;
  }

  __device__ void load_q() {
    TESSERA_UNROLL
    for (int t = 0; t < kTiles; ++t) {
      const int row = first_row + 8 * t + lane / 4;
      const bool is_query = row < p.rows;
      const Q* from = static_cast<const Q*>(p.q) + run.sequence * p.q_strides.batch;
      if (is_query) from += token_of(p, row) * p.q_strides.row + head_of(row) * p.q_strides.head;
      order_q(from, q[t]);
      float sum = 0;
      TESSERA_UNROLL
      for (int step = 0; step < kD / 16; ++step) {
        TESSERA_UNROLL
        for (int reg = 0; reg < 2; ++reg) {
          uint32_t& word = q[t][step][reg];
          if (!is_query) word = 0;
          const float2 pair = tile::pair_to_floats<Q>(word);
          if constexpr (!std::is_same_v<Q, T>) word = tile::pack_pair<T>(pair.x, pair.y);
          sum += pair.x + pair.y;
        }
      }
      if constexpr (kHasLowK) spread(sum, q_sum[t]);
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

  // Where 16 bytes `chunk` of a row of a box lie.
  static constexpr int kPanelChunks = Tile::kPanelBytes / 16;
  static constexpr int kPanelSize = kBoxKeys * Tile::kPanelBytes;
  static __device__ __forceinline__ uint32_t place(int row, int chunk) {
    return chunk / kPanelChunks * kPanelSize +
           tile::swizzled(Tile::kSwizzle, row * Tile::kPanelBytes + 16 * (chunk % kPanelChunks));
  }
  // The same for a lane's row and chunk 2 * group + upper, from place(row, upper), which it keeps:
  // within a panel the swizzle is an xor, so that a constant does it.
  static __device__ __forceinline__ uint32_t place_of_group(uint32_t half, uint32_t lane_place,
                                                            int box, int group) {
    const int in_panel = kPanelChunks > 1 ? 2 * group % kPanelChunks : 0;
    const int panel = 2 * group / kPanelChunks;
    return ((half + lane_place) ^ (16 * in_panel)) + panel * kPanelSize + box * Tile::kBoxBytes;
  }

  // scores[box][t][i]: product of key lane / 4 + 8 * (i / 2) of a box and column i % 2.
  __device__ __forceinline__ void multiply_keys(float (&scores)[2][kTiles][4]) const {
    constexpr int kSteps = 16 / kBits;  // of 16 elements, in what one ldmatrix brings
    // Sums that do not wait for each other, where there are registers for two.
    constexpr int kChains = kD <= 128 ? 2 : 1;
    const uint32_t minus_bases[4] = {K::kMinusBase0, K::kMinusBase0, K::kMinusBase1,
                                     K::kMinusBase1};
    const uint32_t half = ring.half(), lane_place = place(lane % 16, lane / 16);
    TESSERA_UNROLL
    for (int box = 0; box < 2; ++box) {
      float parts[kTiles][kChains][4] = {};
      TESSERA_UNROLL
      for (int group = 0; group < kD / 16 / kSteps; ++group) {
        uint32_t r[4];
        tile::ptx::ldmatrix(r,
                            half + box * Tile::kBoxBytes + place(lane % 16, 2 * group + lane / 16));
        TESSERA_UNROLL
        for (int i = 0; i < kSteps; ++i) {
          uint32_t a[4];
          if constexpr (kBits == 16) {
            TESSERA_UNROLL
            for (int j = 0; j < 4; ++j) a[j] = r[j];
          } else if constexpr (kBits == 8) {
            K::along(r[2 * i], a[0], a[2]);
            K::along(r[2 * i + 1], a[1], a[3]);
          } else {
            uint32_t upper[4], lower[4];
            K::take_apart(r[i / 2 * 2], upper);
            K::take_apart(r[i / 2 * 2 + 1], lower);
            a[0] = upper[i % 2 * 2];
            a[1] = lower[i % 2 * 2];
            a[2] = upper[i % 2 * 2 + 1];
            a[3] = lower[i % 2 * 2 + 1];
          }
          const int step = group * kSteps + i;
          TESSERA_UNROLL
          for (int t = 0; t < kTiles; ++t) {
            // Bases are taken off in the same sum, 16 elements at a time: a query's whole sum times
            // a base could leave no digits for the codes.
            if constexpr (kHasBaseK) {
              tile::ptx::mma<T>(parts[t][step % kChains], minus_bases, q[t][step]);
            }
            tile::ptx::mma<T>(parts[t][step % kChains], a, q[t][step]);
          }
        }
      }
      TESSERA_UNROLL
      for (int t = 0; t < kTiles; ++t) {
        TESSERA_UNROLL
        for (int i = 0; i < 4; ++i)
          scores[box][t][i] =
              kChains == 1 ? parts[t][0][i] : parts[t][0][i] + parts[t][kChains - 1][i];
      }
    }
  }

  __device__ __forceinline__ void multiply_values(const uint32_t (&weights)[2][kTiles][2]) {
    constexpr int kSteps = 16 / kBits;
    // Of 16-bit values the two blocks of 8 elements come first, of codes the 16 keys.
    const uint32_t half = ring.half();
    const uint32_t lane_place =
        kBits == 16 ? place(lane % 8 + 8 * (lane / 16), lane / 8 % 2) : place(lane % 16, lane / 16);
    TESSERA_UNROLL
    for (int box = 0; box < 2; ++box) {
      if constexpr (kHasBaseV) {
        constexpr uint32_t kOnes = 0x3c003c00u;
        TESSERA_UNROLL
        for (int t = 0; t < kTiles; ++t) {
          tile::ptx::mma<T>(weight_sum[t], {kOnes, kOnes, kOnes, kOnes}, weights[box][t]);
        }
      }
      TESSERA_UNROLL
      for (int group = 0; group < kD / 16 / kSteps; ++group) {
        uint32_t r[4];
        tile::ptx::ldmatrix_trans(r, place_of_group(half, lane_place, box, group));
        TESSERA_UNROLL
        for (int i = 0; i < kSteps; ++i) {
          uint32_t a[4];
          if constexpr (kBits == 16) {
            TESSERA_UNROLL
            for (int j = 0; j < 4; ++j) a[j] = r[j];
          } else if constexpr (kBits == 8) {
            V::across(r[2 * i], a[0], a[1]);
            V::across(r[2 * i + 1], a[2], a[3]);
          } else {
            uint32_t upper[4], lower[4];
            V::take_apart(r[i / 2 * 2], upper);
            V::take_apart(r[i / 2 * 2 + 1], lower);
            a[0] = upper[i % 2 * 2];
            a[1] = upper[i % 2 * 2 + 1];
            a[2] = lower[i % 2 * 2];
            a[3] = lower[i % 2 * 2 + 1];
          }
          TESSERA_UNROLL
          for (int t = 0; t < kTiles; ++t) {
            tile::ptx::mma<T>(state.o[t][group * kSteps + i], a, weights[box][t]);
          }
        }
      }
    }
  }

  // Scale and low of this thread's keys: lane / 4 + 8 * i, over a step.
  struct RowScales {
    float scale[4], low[4];
  };
  template <int kNumScales>
  __device__ __forceinline__ RowScales row_scales() const {
    RowScales s;
    const uint32_t at = ring.scales() + 2 * kNumScales * (lane / 4);
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
      const RowScales rows = row_scales<K::kNumScales>();
      TESSERA_UNROLL
      for (int box = 0; box < 2; ++box) {
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
    return p.k_head_scales == nullptr ? 1.0f : p.k_head_scales[run.kv_head * p.k_head_scale_step];
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
      rows = row_scales<V::kNumScales>();
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
          if constexpr (kHasLowV) low[t][i % 2] = fmaf(weight, rows.low[key], low[t][i % 2]);
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
      const uint32_t at = ring.half() + row / kBoxKeys * Tile::kBoxBytes;
      tile::ptx::store_shared(at + place(row % kBoxKeys, i % kRowChunks), uint4{});
    }
    __syncwarp();
    tile::ptx::fence_proxy_async_shared();  // the copy engine writes here next
  }

  __device__ __forceinline__ void take_step(int step) {
    float x[2][kTiles][4], y[2][kTiles][4], sums[kTiles][2];
    ring.wait();
    multiply_keys(x);
    finish_scores(x, step);
    ring.template next<false>(step);
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
    ring.wait();
    uint32_t weights[2][kTiles][2];
    pack(y, weights, step);
    clear_values(step);
    multiply_values(weights);
    ring.template next<true>(step);
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
        if constexpr (kHasBaseV) {
          TESSERA_UNROLL
          for (int upper = 0; upper < 2; ++upper) {
            float offset = -V::base(upper) * weight_sum[t][j];
            if constexpr (kHasLowV) offset = fmaf(low[t][j], kBoost, offset);
            TESSERA_UNROLL
            for (int d = 0; d < kD / 16; ++d) state.o[t][d][2 * upper + j] += offset;
          }
        }
      }
    }
  }
};

}  // namespace tessera::kernels
