// quantize and dequantize: what they take, and where they run.
// SPDX-License-Identifier: MIT
#include "tessera/ops/quantize.h"

#include "core/text.h"
#include "ops/elementwise.h"
#include "ops/round_scales.h"

namespace tessera {
namespace {

using namespace ops;

// Two i4 codes share a byte and so must share a scale, unless each column has its own.
void check_pairs(const Named& codes, const ScaleLayout& layout) {
  if (codes.view.dtype != DType::i4) return;
  const int64_t cols = codes.view.size(-1);
  if (cols % 2 != 0) {
    fail(concat(codes.what, " is ", to_string(codes.view), " with ", cols,
                " columns; i4 needs an even number: pad it"));
  }
  const bool has_pairs = layout.cols_per_scale > 1;
  if (layout.cols_per_scale % 2 != 0 && has_pairs) {
    fail(concat(codes.what, " is i4 in groups of ", layout.cols_per_scale,
                "; the group size must be even"));
  }
}

struct Parts {
  Named x, out, scale;
  std::string_view zero_point;
};

// What both directions share. `codes` is the quantised side.
void check_parts(const Parts& parts, const Named& codes,
                 const std::optional<TensorView>& zero_point) {
  expect_rows(parts.x);
  expect_shape_of(parts.out, parts.x);
  expect_rows(parts.out);
  expect_writable(parts.out);
  expect_apart(parts.out, parts.x);
  expect_tensor(parts.scale, {DType::f32}, parts.x);
  expect_contiguous(parts.scale);
  expect_zero_point(codes, zero_point.has_value());
  check_pairs(codes, scale_layout(parts.x.view, parts.scale.view));
  if (!zero_point) return;
  const Named zero{parts.zero_point, *zero_point};
  expect_tensor(zero, {DType::i32}, parts.x);
  expect_shape_of(zero, parts.scale);
  expect_contiguous(zero);
}

void check_quantize(const QuantizeArgs& args) {
  const Named x{"quantize: x", args.x};
  const Named out{"quantize: out", args.out};
  expect_tensor(x, kFloats);
  expect_tensor(out, kCodes, x);
  check_parts({x, out, {"quantize: scale", args.scale}, "quantize: zero_point"}, out,
              args.zero_point);
}

void check_dequantize(const DequantizeArgs& args) {
  const Named x{"dequantize: x", args.x};
  const Named out{"dequantize: out", args.out};
  expect_tensor(x, kCodes);
  expect_tensor(out, kFloats, x);
  check_parts({x, out, {"dequantize: scale", args.scale}, "dequantize: zero_point"}, x,
              args.zero_point);
  if (!args.table) return;
  const Named table{"dequantize: table", *args.table};
  expect_table(x, table, args.zero_point.has_value());
  expect_apart(out, table);
}

const Op<QuantizeArgs>& quantize_op() {
  static const auto op = elementwise_op("quantize", &check_quantize, &cpu::quantize,
                                        &kernels::ElementwiseRows::quantize);
  return op;
}

const Op<DequantizeArgs>& dequantize_op() {
  static const auto op = elementwise_op("dequantize", &check_dequantize, &cpu::dequantize,
                                        &kernels::ElementwiseRows::dequantize);
  return op;
}

}  // namespace

void quantize(const QuantizeArgs& args, const Context& ctx) {
  run(quantize_op(), args, args.x.device, ctx);
}

void ops::quantize_rounded(const QuantizeArgs& args, DType scale_dtype, const Context& ctx) {
  quantize(args, ctx);
  if (scale_dtype == DType::f32) return;
  float* scales = args.scale.as<float>();
  for (int64_t i = 0; i < args.scale.num_elements(); ++i) {
    scales[i] = rounded_scale(scale_dtype, scales[i]);
  }
  QuantizeArgs fixed = args;
  fixed.mode = ScaleMode::fixed;
  quantize(fixed, ctx);
}

void dequantize(const DequantizeArgs& args, const Context& ctx) {
  run(dequantize_op(), args, args.x.device, ctx);
}

bool supports(const QuantizeArgs& args, const Context& ctx) {
  return is_supported(quantize_op(), args, args.x.device, ctx);
}

bool supports(const DequantizeArgs& args, const Context& ctx) {
  return is_supported(dequantize_op(), args, args.x.device, ctx);
}

}  // namespace tessera
