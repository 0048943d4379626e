// What can happen to a score or a weight besides the scale: softcap, ALiBi, dropout. Only general
// instances contain it; the others have no branch for it.
// SPDX-License-Identifier: MIT
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "core/philox.h"
#include "kernels/attention/params.h"
#include "kernels/attention/softmax.cuh"

namespace tessera::kernels {

// tanh by one exponential and one division, with an absolute error near 2^-22: accurate enough for
// scores of 16-bit operands, with a quarter of the instructions of tanhf.
__device__ __forceinline__ float tanh_by_exp2(float x) {
  return 1.0f - __fdividef(2.0f, 1.0f + exp2_approx(2.0f * kLog2e * x));
}

// From a product of q and k to a score in natural units, for one head.
template <class T>
struct ScoreRule {
  float scale;    // with a softcap, already divided by it
  float softcap;  // 0: none
  float slope;    // of ALiBi; 0: none

  // Without ALiBi.
  __device__ explicit ScoreRule(const ScoreParams& p)
      : scale(p.softcap != 0.0f ? p.scale / p.softcap : p.scale), softcap(p.softcap), slope(0.0f) {}
  __device__ ScoreRule(const ScoreParams& p, int head) : ScoreRule(p) {
    if (p.alibi_slopes != nullptr) slope = p.alibi_slopes[head];
  }

  // `distance`: position of the query minus that of the key.
  __device__ float operator()(float product, int distance) const {
    float score = product * scale;
    if (softcap != 0.0f) {
      score = softcap * (std::is_same_v<T, float> ? tanhf(score) : tanh_by_exp2(score));
    }
    return fmaf(-slope, static_cast<float>(abs(distance)), score);
  }
};

// Which weights of one head are dropped. The others are scaled when the row is normalised.
struct DropoutRule {
  uint64_t seed;
  uint32_t drop_below;  // 0: none
  uint32_t head;
  uint32_t sequence;

  __device__ DropoutRule(const ScoreParams& p, int head_idx, int sequence_idx)
      : seed(p.seed),
        drop_below(p.drop_below),
        head(static_cast<uint32_t>(head_idx)),
        sequence(static_cast<uint32_t>(sequence_idx)) {}

  // The random words of keys 4 * quad to 4 * quad + 3.
  __device__ PhiloxWords words(int position, int quad) const {
    return philox({{static_cast<uint32_t>(quad), static_cast<uint32_t>(position), head, sequence}},
                  seed);
  }
  // For keys `key` and key + 1; `key` is even.
  __device__ void apply_to_pair(int position, int key, float& first, float& second) const {
    const PhiloxWords random = words(position, key / 4);
    const bool is_high = key % 4 != 0;
    if ((is_high ? random.words[2] : random.words[0]) < drop_below) first = 0.0f;
    if ((is_high ? random.words[3] : random.words[1]) < drop_below) second = 0.0f;
  }
  __device__ bool drops(int position, int key) const {
    const PhiloxWords random = words(position, key / 4);
    const uint32_t low = key % 2 != 0 ? random.words[1] : random.words[0];
    const uint32_t high = key % 2 != 0 ? random.words[3] : random.words[2];
    return (key % 4 >= 2 ? high : low) < drop_below;
  }
};

}  // namespace tessera::kernels
