// rms_norm and layer_norm: what they take, and where they run.
// SPDX-License-Identifier: MIT
#include "tessera/ops/norm.h"

#include <cmath>

#include "core/text.h"
#include "ops/elementwise.h"
#include "ops/product_check.h"

namespace tessera {
namespace {

using namespace ops;

// The names in the messages of an operation; the rules are the same for both.
struct Words {
  std::string_view op, x, weight, bias, out, residual, static_scale, token_scale;
};
constexpr Words kRmsNorm = {
    "rms_norm",      "rms_norm: x",        "rms_norm: weight",       "rms_norm: bias",
    "rms_norm: out", "rms_norm: residual", "rms_norm: static_scale", "rms_norm: token_scale"};
constexpr Words kLayerNorm = {"layer_norm",
                              "layer_norm: x",
                              "layer_norm: weight",
                              "layer_norm: bias",
                              "layer_norm: out",
                              "layer_norm: residual",
                              "layer_norm: static_scale",
                              "layer_norm: token_scale"};

// A quantised out needs exactly one scale; any other takes none.
template <class Args>
void check_scales(const Words& words, const Args& args, const Named& x, int64_t num_rows) {
  const bool is_quantized = args.out.dtype != args.x.dtype;
  const int num_scales = int{args.static_scale.has_value()} + int{args.token_scale.has_value()};
  if (num_scales != int{is_quantized}) {
    fail(concat(words.out, " is ", name(args.out.dtype), " and x is ", name(args.x.dtype), ", and ",
                num_scales, " scales are given; ",
                is_quantized ? "a quantised out needs either static_scale or token_scale"
                             : "scales are for an out of e4m3 or i8: leave them out"));
  }
  if (args.static_scale) {
    const Named scale{words.static_scale, *args.static_scale};
    expect_tensor(scale, {DType::f32}, x);
    expect_one_each(scale, 1, "tensor");
  }
  if (args.token_scale) {
    const Named scale{words.token_scale, *args.token_scale};
    expect_tensor(scale, {DType::f32}, x);
    expect_one_each(scale, num_rows, "row of x");
    expect_writable(scale);
  }
}

void check_vector(const Named& vector, const Named& x, int64_t hidden) {
  expect_tensor(vector, kFloats, x);
  expect_dtype_of(vector, x);
  expect_one_each(vector, hidden, "column of x");
}

template <class Args>
void check_norm(const Words& words, const Args& args) {
  const Named x{words.x, args.x};
  const Named out{words.out, args.out};
  expect_tensor(x, kFloats);
  const Rows rows = expect_rows(x);
  if (rows.num_cols == 0) {
    fail(concat(words.x, " is ", to_string(args.x), "; its last axis is empty and has no mean"));
  }
  check_vector({words.weight, args.weight}, x, rows.num_cols);
  expect_tensor(out, {args.x.dtype, DType::e4m3, DType::i8}, x);
  expect_shape_of(out, x);
  expect_rows(out);
  expect_writable(out);
  expect_same_or_apart(out, x);
  if (args.residual) {
    const Named residual{words.residual, *args.residual};
    expect_tensor(residual, kFloats, x);
    expect_dtype_of(residual, x);
    expect_shape_of(residual, x);
    expect_rows(residual);
    expect_writable(residual);
    expect_apart(residual, x);
    expect_apart(out, residual);
  }
  check_scales(words, args, x, rows.num_rows);
  if (!(args.eps >= 0.0f) || std::isinf(args.eps)) {
    fail(concat(words.op, ": eps is ", args.eps, "; it must be finite and not negative"));
  }
}

void check_layer_norm(const LayerNormArgs& args) {
  check_norm(kLayerNorm, args);
  if (!args.bias) return;
  check_vector({kLayerNorm.bias, *args.bias}, {kLayerNorm.x, args.x}, args.x.size(-1));
}

const Op<RmsNormArgs>& rms_norm_op() {
  static const auto op = elementwise_op("rms_norm", &check_rms_norm, &cpu::rms_norm,
                                        &kernels::ElementwiseRows::rms_norm);
  return op;
}

const Op<LayerNormArgs>& layer_norm_op() {
  static const auto op = elementwise_op("layer_norm", &check_layer_norm, &cpu::layer_norm,
                                        &kernels::ElementwiseRows::layer_norm);
  return op;
}

}  // namespace

void ops::check_rms_norm(const RmsNormArgs& args) { check_norm(kRmsNorm, args); }

void rms_norm(const RmsNormArgs& args, const Context& ctx) {
  run(rms_norm_op(), args, args.x.device, ctx);
}

void layer_norm(const LayerNormArgs& args, const Context& ctx) {
  run(layer_norm_op(), args, args.x.device, ctx);
}

bool supports(const RmsNormArgs& args, const Context& ctx) {
  return is_supported(rms_norm_op(), args, args.x.device, ctx);
}

bool supports(const LayerNormArgs& args, const Context& ctx) {
  return is_supported(layer_norm_op(), args, args.x.device, ctx);
}

}  // namespace tessera
