// quantize and dequantize: what they take, and where they run.
// SPDX-License-Identifier: MIT
#include "tessera/ops/quantize.h"

#include "core/text.h"
#include "cpu/elementwise.h"
#include "kernels/elementwise/rows.h"
#include "ops/check.h"
#include "ops/dispatch.h"

namespace tessera {
namespace {

using namespace ops;

constexpr DTypeSet kCodes = {DType::i8, DType::u8, DType::i4, DType::e4m3, DType::e5m2};

// u8 codes are meaningless without a zero point; i8 and FP8 have none; i4 may have one.
void check_zero_point(const Named& codes, bool has_zero_point) {
  const DType type = codes.view.dtype;
  if (type == DType::u8 && !has_zero_point) {
    fail(concat(codes.what, " is u8 and there is no zero_point; give one, or use i8"));
  }
  if (type != DType::u8 && type != DType::i4 && has_zero_point) {
    fail(concat(codes.what, " is ", name(type),
                " and there is a zero_point; only u8 and i4 take one: leave it out"));
  }
}

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
  check_zero_point(codes, zero_point.has_value());
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
}

const Op<QuantizeArgs>& quantize_op() {
  static const Op<QuantizeArgs> op{"quantize", &check_quantize, &cpu::quantize,
                                   kernels::elementwise_rows_sm90().quantize,
                                   kernels::elementwise_rows().quantize};
  return op;
}

const Op<DequantizeArgs>& dequantize_op() {
  static const Op<DequantizeArgs> op{"dequantize", &check_dequantize, &cpu::dequantize,
                                     kernels::elementwise_rows_sm90().dequantize,
                                     kernels::elementwise_rows().dequantize};
  return op;
}

}  // namespace

void quantize(const QuantizeArgs& args, const Context& ctx) {
  run(quantize_op(), args, args.x.device, ctx);
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
