// softmax: what it takes, and where it runs.
// SPDX-License-Identifier: MIT
#include "tessera/ops/softmax.h"

#include "core/text.h"
#include "cpu/elementwise.h"
#include "kernels/elementwise/rows.h"
#include "ops/check.h"
#include "ops/dispatch.h"

namespace tessera {
namespace {

using namespace ops;

void check_softmax(const SoftmaxArgs& args) {
  const Named x{"softmax: x", args.x};
  const Named out{"softmax: out", args.out};
  expect_tensor(x, kFloats);
  const Rows rows = expect_rows(x);
  expect_tensor(out, kFloats, x);
  expect_dtype_of(out, x);
  expect_shape_of(out, x);
  expect_rows(out);
  expect_writable(out);
  expect_same_or_apart(out, x);
  if (!args.mask) return;
  const Named mask{"softmax: mask", *args.mask};
  expect_tensor(mask, {DType::u8, DType::f32}, x);
  const Rows mask_rows = expect_rows(mask);
  if (mask_rows.num_cols != rows.num_cols || (mask_rows.num_rows == 0 && rows.num_rows > 0)) {
    fail(concat("softmax: mask is ", to_string(*args.mask), " and x is ", to_string(args.x),
                "; a mask needs at least one row, of ", rows.num_cols, " columns"));
  }
  expect_apart(out, mask);
}

const Op<SoftmaxArgs>& softmax_op() {
  static const Op<SoftmaxArgs> op{"softmax", &check_softmax, &cpu::softmax,
                                  kernels::elementwise_rows_sm90().softmax,
                                  kernels::elementwise_rows().softmax};
  return op;
}

}  // namespace

void softmax(const SoftmaxArgs& args, const Context& ctx) {
  run(softmax_op(), args, args.x.device, ctx);
}

bool supports(const SoftmaxArgs& args, const Context& ctx) {
  return is_supported(softmax_op(), args, args.x.device, ctx);
}

}  // namespace tessera
