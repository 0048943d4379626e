// Elementwise activations, plain or gating a second tensor (SwiGLU, GeGLU).
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>

#include "tessera/core/context.h"
#include "tessera/core/tensor.h"

namespace tessera {

enum class Activation : uint8_t {
  relu,
  silu,       // x / (1 + exp(-x))
  gelu,       // x * Phi(x), by erf
  gelu_tanh,  // the tanh form of GELU
};

//   out = f(x) * up        in float, rounded once; without up, out = f(x)
// Leading axes are rows; x, up and out may have different row strides, so gate and up may be the
// two halves of one matrix. Error: 2 ulp of the dtype, or 1e-6 absolute in f32.
struct ActivationArgs {
  TensorView x;                       // [rows, cols]; f32, f16 or bf16
  std::optional<TensorView> up = {};  // [rows, cols], dtype of x
  TensorView out;                     // [rows, cols], dtype of x; may be x or up
  Activation kind = Activation::silu;
};

void activation(const ActivationArgs& args, const Context& ctx = {});
bool supports(const ActivationArgs& args, const Context& ctx = {});

}  // namespace tessera
