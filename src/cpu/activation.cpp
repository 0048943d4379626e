// Activations on the CPU, plain and gated.
// SPDX-License-Identifier: MIT
#include <cmath>

#include "cpu/elementwise.h"
#include "cpu/float_row.h"
#include "cpu/parallel.h"
#include "cpu/silu_row.h"

namespace tessera::cpu {
namespace {

// Each is a function of one element, applied to a row in place.
template <class F>
struct Elementwise {
  void operator()(float* values, int64_t count) const {
    for (int64_t i = 0; i < count; ++i) values[i] = F{}(values[i]);
  }
};

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

template <class T, class F>
void apply(const ActivationArgs& args, F f) {
  const Rows x = as_rows(args.x, "x");
  const Rows out = as_rows(args.out, "out");
  const Rows up = args.up ? as_rows(*args.up, "up") : Rows{};
  // By way of scratch, so that the conversions vectorise where the functions do not.
  for_each_row(x.num_rows, x.num_cols, x.num_cols, [&](int64_t row, float* values) {
    load_row(args.x.as<T>() + row * x.row_stride, x.num_cols, values);
    f(values, x.num_cols);
    if (args.up) {
      const T* by = args.up->as<T>() + row * up.row_stride;
      for (int64_t i = 0; i < x.num_cols; ++i) values[i] *= to_float(by[i]);
    }
    store_row(values, x.num_cols, args.out.as<T>() + row * out.row_stride);
  });
}

}  // namespace

void activation(const ActivationArgs& args) {
  with_float_type(args.x.dtype, [&](auto type) {
    using T = decltype(type);
    switch (args.kind) {
      case Activation::relu: return apply<T>(args, Elementwise<Relu>{});
      case Activation::silu: return apply<T>(args, silu_row_builds().best());
      case Activation::gelu: return apply<T>(args, Elementwise<Gelu>{});
      case Activation::gelu_tanh: return apply<T>(args, Elementwise<GeluTanh>{});
    }
  });
}

}  // namespace tessera::cpu
