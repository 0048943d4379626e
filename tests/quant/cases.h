// Weights and inputs for tests of quantisers.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <random>

#include "tessera/core/tensor.h"
#include "tessera/quant/quantizers.h"

namespace tessera::testing {

// Normal numbers; the same for the same seed everywhere, as sums of 12 uniform ones.
inline float normal(std::mt19937& random) {
  float sum = -6.0f;
  for (int i = 0; i < 12; ++i) sum += static_cast<float>(random() >> 8) * 0x1p-24f;
  return sum;
}

inline Tensor random_matrix(int64_t rows, int64_t cols, uint32_t seed) {
  std::mt19937 random(seed);
  Tensor out(DType::f32, {rows, cols});
  for (int64_t i = 0; i < rows * cols; ++i) out.view().as<float>()[i] = normal(random);
  return out;
}

// Inputs whose columns have much in common, and some of them far larger values than others, as the
// inputs of language models do.
inline Tensor correlated_inputs(int64_t rows, int64_t k, uint32_t seed) {
  std::mt19937 random(seed);
  constexpr int64_t kCauses = 8;
  const Tensor mix = random_matrix(kCauses, k, seed + 1);
  Tensor out(DType::f32, {rows, k});
  for (int64_t row = 0; row < rows; ++row) {
    float causes[kCauses];
    for (float& cause : causes) cause = normal(random);
    for (int64_t i = 0; i < k; ++i) {
      float value = 0.3f * normal(random);
      for (int64_t c = 0; c < kCauses; ++c) value += causes[c] * mix.view().as<float>()[c * k + i];
      out.view().as<float>()[row * k + i] = value * (i % 16 == 3 ? 8.0f : 1.0f);
    }
  }
  return out;
}

inline quant::InputStats stats_of(const TensorView& x) {
  quant::InputStats stats(x.size(1));
  stats.add(x);
  return stats;
}

}  // namespace tessera::testing
