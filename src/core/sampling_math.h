// The arithmetic of sampling, shared by the CPU and the GPU. Weights are integers: their sums are
// exact in any order, so both choose the same token, however a row is split.
// SPDX-License-Identifier: MIT
#pragma once

#include <bit>
#include <cstdint>

#include "core/philox.h"

namespace tessera::sampling {

// The weight of the largest logit. Sums of 2^20 weights fit into 64 bits.
inline constexpr int kWeightBits = 40;
inline constexpr uint64_t kOne = uint64_t{1} << kWeightBits;
inline constexpr int64_t kMaxVocab = int64_t{1} << 20;

// A float as an integer of the same order. -0 and 0 are equal; NaN is not taken.
constexpr uint32_t order_of(float x) {
  const auto bits = std::bit_cast<uint32_t>(x + 0.0f);  // -0 becomes 0
  return bits ^ (bits >> 31 != 0 ? 0xffffffffu : 0x80000000u);
}

constexpr float value_of_order(uint32_t order) {
  return std::bit_cast<float>(order ^ (order >> 31 != 0 ? 0x80000000u : 0xffffffffu));
}

// A token and its logit as one integer: the better candidate, of equals the smaller token, has the
// larger key. 0 is below every key.
constexpr uint64_t key_of(float x, int32_t token) {
  return uint64_t{order_of(x)} << 32 | ~static_cast<uint32_t>(token);
}
constexpr int32_t token_of(uint64_t key) {
  return static_cast<int32_t>(~static_cast<uint32_t>(key));
}
constexpr float logit_of(uint64_t key) { return value_of_order(static_cast<uint32_t>(key >> 32)); }

// log2(e) / temperature as a finite float; `temperature` is above 0.
constexpr float log2_scale(float temperature) {
  const double scale = 1.4426950408889634 / double{temperature};
  return static_cast<float>(scale < 3e38 ? scale : 3e38);
}

// The bits of 1.0f less 2^23: what is above them in a float from 1 to 2 is the float times 2^23.
inline constexpr uint32_t kMantissaBase = 0x3f800000u - (1u << 23);

// 2^y * kOne for y <= 0, rounded down, which makes it 0 below 2^-40. Relative error before that: at
// most 2^-23. `math` has the operations that compilers and machines spell differently: fma(a, b, c)
// rounded once; larger(a, b), which is b where a is NaN; and floor(y, shift), which also sets shift
// to -floor(y). With these, and with x - largest and the product by log2_scale rounded on their
// own, every machine computes the same bits.
template <class Math>
constexpr uint64_t weight_of(float y, Math math) {
  y = math.larger(y, -60.0f);
  int shift = 0;
  const float f = y - math.floor(y, shift);  // exact, in [0, 1)
  float p = 0x1.c5464p-13f;
  p = math.fma(p, f, 0x1.46d326p-10f);
  p = math.fma(p, f, 0x1.3d0c4p-7f);
  p = math.fma(p, f, 0x1.c688fp-5f);
  p = math.fma(p, f, 0x1.ebfd5ap-3f);
  p = math.fma(p, f, 0x1.62e42cp-1f);
  p = math.fma(p, f, 1.0f);
  const uint32_t mantissa = std::bit_cast<uint32_t>(p) - kMantissaBase;  // p * 2^23
  return uint64_t{mantissa} << (kWeightBits - 23) >> shift;
}

// The smallest whole number that is at least `share` of `total`, from 1 to total; NaN counts as 0.
constexpr uint64_t share_of(uint64_t total, float share) {
  const double exact = double{share} * static_cast<double>(total);
  if (!(exact > 1.0)) return 1;
  if (exact >= static_cast<double>(total)) return total;
  const auto whole = static_cast<uint64_t>(exact);
  return whole + (static_cast<double>(whole) < exact ? 1 : 0);
}

// Typical sampling orders tokens by how far -log2 p is from its mean, in steps of 2^-18.
constexpr int32_t surprise_of(float y) { return static_cast<int32_t>(y * 0x1p18f); }
constexpr int64_t coarse_weight(uint64_t weight) { return static_cast<int64_t>(weight >> 20); }
// The larger key is nearer to the mean; of equals the smaller token's.
constexpr uint64_t typical_key(int32_t surprise, int64_t mean, int32_t token) {
  const int64_t distance = surprise < mean ? mean - surprise : surprise - mean;
  return uint64_t{~static_cast<uint32_t>(distance)} << 32 | ~static_cast<uint32_t>(token);
}

// 64 random bits for one draw.
constexpr uint64_t random_bits(uint64_t seed, int32_t sequence, int64_t position) {
  const auto high = static_cast<uint64_t>(sequence);
  const auto low = static_cast<uint64_t>(position);
  const PhiloxWords block =
      philox({{static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32),
               static_cast<uint32_t>(high), static_cast<uint32_t>(high >> 32)}},
             seed);
  return uint64_t{block.words[0]} << 32 | block.words[1];
}

// A new value for a logit. -infinity stays; all others stay finite.
constexpr float replaced(float logit, double value) {
  constexpr double kLargest = 3.4028234663852886e38;
  if (!(logit > -__builtin_huge_valf())) return logit;
  return static_cast<float>(value < -kLargest ? -kLargest : value > kLargest ? kLargest : value);
}

// NaN is no bias.
constexpr float biased(float logit, float bias) {
  constexpr float kMost = 100.0f;
  if (bias == -__builtin_huge_valf()) return bias;
  const float held = bias > kMost ? kMost : bias > -kMost ? bias : bias <= -kMost ? -kMost : 0.0f;
  return replaced(logit, double{logit} + double{held});
}

// Marks in a token's count that the prompt contains it.
inline constexpr int32_t kInPrompt = int32_t{1} << 30;

struct Penalties {
  float repetition = 1.0f;
  float presence = 0.0f;
  float frequency = 0.0f;

  constexpr bool any() const { return repetition != 1.0f || presence != 0.0f || frequency != 0.0f; }

  // `count` as in SampleArgs::seen_counts. The product is exact in a double, so fusing it with the
  // subtraction changes nothing.
  constexpr float apply(float logit, int32_t count) const {
    if (count == 0) return logit;
    const double repeated =
        logit > 0.0f ? double{logit} / double{repetition} : double{logit} * double{repetition};
    logit = replaced(logit, repeated);
    const int32_t generated = count & (kInPrompt - 1);
    if (generated == 0) return logit;
    return replaced(logit, double{logit} - double{presence} - double{frequency} * generated);
  }
};

}  // namespace tessera::sampling
