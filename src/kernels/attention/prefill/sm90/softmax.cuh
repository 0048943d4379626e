// The online softmax of a warpgroup's 64 rows, a block of keys at a time.
// SPDX-License-Identifier: MIT
#pragma once

#include <type_traits>

#include "kernels/attention/mask.cuh"
#include "kernels/attention/prefill/sm90/shared.cuh"
#include "kernels/attention/scores.cuh"
#include "kernels/attention/softmax.cuh"
#include "tile/fragment.cuh"

namespace tessera::kernels::prefill_sm90 {

// A thread holds kKeys / 4 scores of each of two rows (fragment.cuh); four lanes share a row.
//
// Exponents are relative to a reference: the row's largest score when the reference was last set.
// It is replaced only if some lane's weights of a block sum to more than kCap. Weights up to that
// are as precise as weights of 1, nothing needs rescaling meanwhile, and no maximum is computed.
// When the reference is replaced depends on the row's scores alone.
template <class T, class Tile, bool kIsGeneral>
struct PrefillSoftmax {
  static constexpr int kScoreRegs = Tile::kKeys / 2;
  static constexpr int kWeightRegs = kScoreRegs * static_cast<int>(sizeof(T)) / 4;
  static constexpr bool kIs8Bit = sizeof(T) == 1;
  // e4m3 ends at 448, and small weights keep more digits if the largest weight is large.
  static constexpr float kCap = kIs8Bit ? 448.0f : 256.0f;
  static constexpr float kBoost = kIs8Bit ? 4.0f : 0.0f;  // the weight of the reference is 2^kBoost
  using Scores = float[kScoreRegs];
  using Weights = uint32_t[kWeightRegs];

  const Sm90PrefillParams& p;
  int warpgroup;
  float scale;      // from scores to exponents of two
  float cap[2];     // kCap; negative: no reference yet
  float shift[2];   // the reference as an exponent of two; 0: none yet
  float sum[2];     // of this thread's weights
  float factor[2];  // by which results of earlier blocks must be multiplied

  __device__ PrefillSoftmax(const Sm90PrefillParams& p, int warpgroup)
      : p(p), warpgroup(warpgroup), scale(kIsGeneral ? kLog2e : p.common.scores.scale * kLog2e) {}

  // The first of the thread's two rows; the other is 8 further.
  __device__ int row_in_tile() const {
    const int thread = static_cast<int>(threadIdx.x) % 128;
    return 64 * warpgroup + thread / 32 * 16 + thread % 32 / 4;
  }

  static __device__ Sequence sequence_of_work(const PrefillWork& work) {
    return {.index = work.sequence,
            .q_begin = work.q_begin,
            .q_len = work.q_len,
            .kv_begin = 0,
            .kv_len = work.kv_len};
  }

  // One bit for each of a row's elements in this thread, set if its key lies less than `offset`
  // after the thread's first. Elements are pairs of keys, 8 apart.
  using Bits = std::conditional_t<(Tile::kKeys > 128), uint64_t, uint32_t>;
  static __device__ Bits bits_before(int offset) {
    const int keys = min(max(offset, 0), Tile::kKeys);
    const int count = 2 * (keys / 8) + min(keys % 8, 2);
    return count == 0 ? Bits{0} : ~Bits{0} >> (8 * static_cast<int>(sizeof(Bits)) - count);
  }
  static __device__ Bits bits_of(KeyRange range, int first_key) {
    return bits_before(range.end - first_key) & ~bits_before(range.begin - first_key);
  }

  __device__ __forceinline__ void mask(Scores& s, const PrefillWork& work, int block) const {
    const int first_key = block * Tile::kKeys + 2 * (static_cast<int>(threadIdx.x) % 4);
    const Sequence sequence = sequence_of_work(work);
    TESSERA_UNROLL
    for (int r = 0; r < 2; ++r) {
      const int row = min(work.first_row + row_in_tile() + 8 * r, work.q_len - 1);
      const RowKeys keys = row_keys(p.common.mask, sequence, row);
      const Bits bits = bits_of(keys.ranges[0], first_key) | bits_of(keys.ranges[1], first_key);
      TESSERA_UNROLL
      for (int i = 0; i < kScoreRegs / 2; ++i) {
        float& x = s[4 * (i / 2) + 2 * r + i % 2];
        if ((bits >> i & 1) == 0) x = kMinusInfinity;
      }
    }
  }

  // The scale of 8-bit queries times that of keys.
  static __device__ float at_or_one(const float* scales, int i) {
    return scales == nullptr ? 1.0f : scales[i];
  }
  __device__ float scale_of_8_bit(const PrefillWork& work) const {
    const int i = work.sequence * p.common.num_kv_heads + work.kv_head;
    return at_or_one(p.common.scores.q_scale, i) * at_or_one(p.common.scores.k_scale, i);
  }

  // General instances, before anything else: softcap and ALiBi.
  __device__ __forceinline__ void modify(Scores& s, const PrefillWork& work, int block) const {
    const ScoreRule<T> rule(p.common.scores, work.head);
    const int first_key = block * Tile::kKeys + 2 * (static_cast<int>(threadIdx.x) % 4);
    const int position = work.first_row + row_in_tile() + work.kv_len - work.q_len;
    const float factor = kIs8Bit ? scale_of_8_bit(work) : 1.0f;
    TESSERA_UNROLL
    for (int i = 0; i < kScoreRegs; ++i) {
      s[i] = rule(s[i] * factor, position + 8 * (i / 2 % 2) - (first_key + 8 * (i / 4) + i % 2));
    }
  }

  // General instances, after the weights have been summed: dropout.
  __device__ __forceinline__ void drop(float& first, float& second, const PrefillWork& work,
                                       int block, int i) const {
    const DropoutRule rule(p.common.scores, work.head, work.sequence);
    if (rule.drop_below == 0) return;
    const int key = block * Tile::kKeys + 2 * (static_cast<int>(threadIdx.x) % 4) + 8 * (i / 4);
    const int position =
        work.first_row + row_in_tile() + 8 * (i / 2 % 2) + work.kv_len - work.q_len;
    rule.apply_to_pair(position, key, first, second);
  }

  // The largest of this thread's scores of row r, by four independent chains.
  __device__ static float largest(const Scores& s, int r) {
    constexpr int kChains = 4;
    float top[kChains] = {s[2 * r], s[2 * r + 1], s[4 + 2 * r], s[4 + 2 * r + 1]};
    TESSERA_UNROLL
    for (int i = 2; i < kScoreRegs / 4; ++i) {
      TESSERA_UNROLL
      for (int j = 0; j < 2; ++j) {
        float& chain = top[(2 * i + j) % kChains];
        chain = fmaxf(chain, s[4 * i + 2 * r + j]);
      }
    }
    return fmaxf(fmaxf(top[0], top[1]), fmaxf(top[2], top[3]));
  }

  // Weights, rounded to T, and their sums.
  __device__ __forceinline__ void exponentiate(const Scores& s, Weights& weights, float (&sums)[2],
                                               const PrefillWork& work, int block) const {
    float parts[2][2] = {};
    // Two groups of eight keys at a time: four 8-bit weights of a row make a word (produce.cuh).
    TESSERA_UNROLL
    for (int first = 0; first < kScoreRegs; first += 8) {
      TESSERA_UNROLL
      for (int r = 0; r < 2; ++r) {
        float y[4];
        TESSERA_UNROLL
        for (int i = 0; i < 4; ++i) {
          const float x = s[first + 4 * (i / 2) + 2 * r + i % 2];
          y[i] = exp2_approx(fmaf(x, scale, -shift[r]));
          parts[r][i % 2] += y[i];
        }
        if constexpr (kIsGeneral) {
          drop(y[0], y[1], work, block, first + 2 * r);
          drop(y[2], y[3], work, block, first + 4 + 2 * r);
        }
        if constexpr (kIs8Bit) {
          weights[first / 4 + r] = tile::pack_e4m3(y[0], y[1], y[2], y[3]);
        } else {
          weights[first / 2 + r] = tile::pack_pair<T>(y[0], y[1]);
          weights[first / 2 + 2 + r] = tile::pack_pair<T>(y[2], y[3]);
        }
      }
    }
    TESSERA_UNROLL
    for (int r = 0; r < 2; ++r) sums[r] = parts[r][0] + parts[r][1];
  }

  // Sets the reference of rows whose weights are too large or that have none.
  __device__ __forceinline__ void refer(const Scores& s, const float (&sums)[2]) {
    TESSERA_UNROLL
    for (int r = 0; r < 2; ++r) {
      float top = largest(s, r);
      float most = sums[r];
      TESSERA_UNROLL
      for (int lanes = 1; lanes < 4; lanes *= 2) {
        top = fmaxf(top, __shfl_xor_sync(~0u, top, lanes));
        most = fmaxf(most, __shfl_xor_sync(~0u, most, lanes));
      }
      if (!(most > cap[r]) || top == kMinusInfinity) continue;
      factor[r] = cap[r] < 0 ? 0.0f : exp2_approx(fmaf(-top, scale, shift[r] + kBoost));
      shift[r] = fmaf(top, scale, -kBoost);
      cap[r] = kCap;
    }
  }

  // Turns the scores of a tile's first block into weights.
  __device__ __forceinline__ void weigh_first(Scores& s, Weights& weights, const PrefillWork& work,
                                              int block, bool is_full) {
    if constexpr (kIs8Bit && !kIsGeneral) {
      scale = p.common.scores.scale * kLog2e * scale_of_8_bit(work);
    }
    if constexpr (kIsGeneral) modify(s, work, block);
    if (!is_full) mask(s, work, block);
    TESSERA_UNROLL
    for (int r = 0; r < 2; ++r) {
      cap[r] = -1;
      shift[r] = 0;
      sum[r] = 0;
    }
    refer(s, sum);
    exponentiate(s, weights, sum, work, block);
  }

  // The same for a later block. True: results of earlier blocks must be multiplied by `factor`.
  __device__ __forceinline__ bool weigh(Scores& s, Weights& weights, const PrefillWork& work,
                                        int block, bool is_full) {
    if constexpr (kIsGeneral) modify(s, work, block);
    if (!is_full) mask(s, work, block);
    float sums[2];
    exponentiate(s, weights, sums, work, block);
    const bool is_too_large = __any_sync(~0u, sums[0] > cap[0] || sums[1] > cap[1]);
    if (is_too_large) {
      factor[0] = 1.0f;
      factor[1] = 1.0f;
      refer(s, sums);
      exponentiate(s, weights, sums, work, block);
      sum[0] *= factor[0];
      sum[1] *= factor[1];
    }
    sum[0] += sums[0];
    sum[1] += sums[1];
    return is_too_large;
  }

  template <int kOutRegs>
  __device__ void rescale(float (&o)[kOutRegs]) const {
    TESSERA_UNROLL
    for (int i = 0; i < kOutRegs; ++i) o[i] *= factor[i / 2 % 2];
  }

  __device__ __forceinline__ RowEnds end(const PrefillWork& work) const {
    RowEnds ends;
    TESSERA_UNROLL
    for (int r = 0; r < 2; ++r) {
      float total = sum[r] + __shfl_xor_sync(~0u, sum[r], 1);
      total += __shfl_xor_sync(~0u, total, 2);
      float power = shift[r];  // the sum of exponentials is total * 2^power
      float shrink = 1.0f;
      if (p.common.scores.sinks != nullptr) {
        const float sink = p.common.scores.sinks[work.head] * kLog2e;
        const float top = total > 0 ? fmaxf(power, sink) : sink;
        shrink = total > 0 ? exp2_approx(power - top) : 0.0f;
        total = total * shrink + exp2_approx(sink - top);
        power = top;
      }
      // A NaN is not an empty sum: it must reach the result and the lse, by which a merge weighs
      // it.
      ends.factor[r] = total == 0 ? 0.0f : __fdividef(shrink, total);
      if constexpr (kIsGeneral) ends.factor[r] *= p.common.scores.keep_scale;
      if constexpr (kIs8Bit) {
        ends.factor[r] *= at_or_one(p.common.scores.v_scale,
                                    work.sequence * p.common.num_kv_heads + work.kv_head);
      }
      ends.lse[r] = total == 0 ? kMinusInfinity : (power + __log2f(total)) * kLn2;
    }
    return ends;
  }
};

}  // namespace tessera::kernels::prefill_sm90
