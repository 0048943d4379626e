// scale: what it takes, and where it runs.
// SPDX-License-Identifier: MIT
#include "tessera/ops/scale.h"

#include <cmath>

#include "core/text.h"
#include "cpu/elementwise.h"
#include "kernels/elementwise/rows.h"
#include "ops/check.h"
#include "ops/dispatch.h"

namespace tessera {
namespace {

using namespace ops;

void check_scale(const ScaleArgs& args) {
  const Named x{"scale: x", args.x};
  const Named out{"scale: out", args.out};
  const auto check_like_x = [&](const Named& tensor) {
    expect_tensor(tensor, kFloats, x);
    expect_dtype_of(tensor, x);
    expect_shape_of(tensor, x);
    expect_contiguous(tensor);
  };
  expect_tensor(x, kFloats);
  expect_contiguous(x);
  check_like_x(out);
  expect_writable(out);
  expect_same_or_apart(out, x);
  if (args.residual) {
    const Named residual{"scale: residual", *args.residual};
    check_like_x(residual);
    expect_same_or_apart(out, residual);
  }
  if (!std::isfinite(args.scale))
    fail(concat("scale: scale is ", args.scale, "; it must be finite"));
  if (!(args.softcap >= 0.0f) || !std::isfinite(args.softcap)) {
    fail(concat("scale: softcap is ", args.softcap,
                "; it must be finite and positive, or 0 for none"));
  }
}

const Op<ScaleArgs>& scale_op() {
  static const Op<ScaleArgs> op{"scale", &check_scale, &cpu::scale,
                                kernels::elementwise_rows_sm90().scale,
                                kernels::elementwise_rows().scale};
  return op;
}

}  // namespace

void scale(const ScaleArgs& args, const Context& ctx) { run(scale_op(), args, args.x.device, ctx); }

bool supports(const ScaleArgs& args, const Context& ctx) {
  return is_supported(scale_op(), args, args.x.device, ctx);
}

}  // namespace tessera
