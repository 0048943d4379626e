// activation: what it takes, and where it runs.
// SPDX-License-Identifier: MIT
#include "tessera/ops/activation.h"

#include "cpu/elementwise.h"
#include "kernels/elementwise/rows.h"
#include "ops/check.h"
#include "ops/dispatch.h"

namespace tessera {
namespace {

using namespace ops;

void check_activation(const ActivationArgs& args) {
  const Named x{"activation: x", args.x};
  const Named out{"activation: out", args.out};
  expect_tensor(x, kFloats);
  expect_rows(x);
  expect_tensor(out, kFloats, x);
  expect_dtype_of(out, x);
  expect_shape_of(out, x);
  expect_rows(out);
  expect_writable(out);
  expect_same_or_apart(out, x);
  if (args.up) {
    const Named up{"activation: up", *args.up};
    expect_tensor(up, kFloats, x);
    expect_dtype_of(up, x);
    expect_shape_of(up, x);
    expect_rows(up);
    expect_same_or_apart(out, up);
  }
  expects(args.kind <= Activation::gelu_tanh,
          "activation: kind is none of relu, silu, gelu and gelu_tanh");
}

const Op<ActivationArgs>& activation_op() {
  static const Op<ActivationArgs> op{"activation", &check_activation, &cpu::activation,
                                     kernels::elementwise_rows_sm90().activation,
                                     kernels::elementwise_rows().activation};
  return op;
}

}  // namespace

void activation(const ActivationArgs& args, const Context& ctx) {
  run(activation_op(), args, args.x.device, ctx);
}

bool supports(const ActivationArgs& args, const Context& ctx) {
  return is_supported(activation_op(), args, args.x.device, ctx);
}

}  // namespace tessera
