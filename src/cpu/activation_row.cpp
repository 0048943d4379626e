// The activation functions on rows of floats.
// SPDX-License-Identifier: MIT
#include "cpu/activation_row.h"

#include <cmath>

#include "cpu/silu_row.h"
#include "tessera/core/error.h"

namespace tessera::cpu {
namespace {

template <class F>
void apply(float* values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) values[i] = F{}(values[i]);
}

struct Relu {
  float operator()(float x) const { return x < 0.0f ? 0.0f : x; }  // NaN stays NaN
};

// x / (1 + exp(-v)). The exponential of a negative number cannot overflow, so the tail keeps its
// relative accuracy as far as floats reach.
float times_sigmoid(float x, float v) {
  const float t = std::exp(-std::fabs(v));
  return (v < 0.0f ? x * t : x) / (1.0f + t);
}

// Phi(x) is half of erfc(-x / sqrt(2)); 1 + erf would cancel for negative x.
struct Gelu {
  float operator()(float x) const { return x * (0.5f * std::erfc(x * -0.70710678118654752f)); }
};

// 0.5 x (1 + tanh(u)) is x sigmoid(2u), which does not cancel for negative x.
struct GeluTanh {
  float operator()(float x) const {
    const float u = 0.79788456080286536f * (x + 0.044715f * x * x * x);
    return times_sigmoid(x, 2.0f * u);
  }
};

}  // namespace

ActivateRow activate_row(Activation kind) {
  switch (kind) {
    case Activation::relu: return &apply<Relu>;
    case Activation::silu: return silu_row_builds().best();
    case Activation::gelu: return &apply<Gelu>;
    case Activation::gelu_tanh: return &apply<GeluTanh>;
  }
  fail("the CPU was handed an activation that it does not have");
}

}  // namespace tessera::cpu
