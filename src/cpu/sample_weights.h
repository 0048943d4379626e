// Weights of a row of logits, as core/sampling_math.h defines them, for each instruction set.
// SPDX-License-Identifier: MIT
#pragma once

#include <cmath>
#include <cstdint>

#include "cpu/simd_dispatch.h"

namespace tessera::cpu {

// What sampling::weight_of needs.
struct SampleMath {
  static float fma(float a, float b, float c) { return std::fmaf(a, b, c); }
  static float larger(float a, float b) { return a > b ? a : b; }
  static float floor(float y, int& shift) {
    const float whole = std::floor(y);
    shift = -static_cast<int>(whole);
    return whole;
  }
};

struct SampleWeights {
  const float* logits;  // [count]
  int64_t count;
  float largest;      // of the row
  float log2_scale;   // sampling::log2_scale(temperature)
  float* y;           // out: [count], log2 of weight / kOne
  uint64_t* weights;  // out: [count]
};

// The same bits from every build.
SimdBuilds<void(const SampleWeights&)> sample_weights_builds();

}  // namespace tessera::cpu
