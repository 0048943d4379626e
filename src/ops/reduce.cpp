// reduce and argmax: what they take, and where they run.
// SPDX-License-Identifier: MIT
#include "tessera/ops/reduce.h"

#include "core/text.h"
#include "cpu/elementwise.h"
#include "kernels/elementwise/rows.h"
#include "ops/check.h"
#include "ops/dispatch.h"

namespace tessera {
namespace {

using namespace ops;

void check_reduce(const ReduceArgs& args) {
  const Named x{"reduce: x", args.x};
  const Named out{"reduce: out", args.out};
  expect_tensor(x, kFloats);
  const Rows rows = expect_rows(x);
  expects(args.kind <= Reduction::absmax, "reduce: kind is none of sum, mean, max, min and absmax");
  const bool takes_nothing = args.kind == Reduction::sum || args.kind == Reduction::absmax;
  if (rows.num_cols == 0 && !takes_nothing) {
    fail(
        concat("reduce: x is ", to_string(args.x), "; mean, max and min need at least one column"));
  }
  expect_tensor(out, {DType::f32}, x);
  expect_one_each(out, rows.num_rows, "row of x");
  expect_apart(out, x);
}

void check_argmax(const ArgmaxArgs& args) {
  const Named x{"argmax: x", args.x};
  const Named out{"argmax: out", args.out};
  expect_tensor(x, kFloats);
  const Rows rows = expect_rows(x);
  if (rows.num_cols == 0) {
    fail(concat("argmax: x is ", to_string(args.x), "; it needs at least one column"));
  }
  expect_tensor(out, kIndices, x);
  expect_one_each(out, rows.num_rows, "row of x");
  expect_apart(out, x);
}

const Op<ReduceArgs>& reduce_op() {
  static const Op<ReduceArgs> op{"reduce", &check_reduce, &cpu::reduce,
                                 kernels::elementwise_rows_sm90().reduce,
                                 kernels::elementwise_rows().reduce};
  return op;
}

const Op<ArgmaxArgs>& argmax_op() {
  static const Op<ArgmaxArgs> op{"argmax", &check_argmax, &cpu::argmax,
                                 kernels::elementwise_rows_sm90().argmax,
                                 kernels::elementwise_rows().argmax};
  return op;
}

}  // namespace

void reduce(const ReduceArgs& args, const Context& ctx) {
  run(reduce_op(), args, args.x.device, ctx);
}

void argmax(const ArgmaxArgs& args, const Context& ctx) {
  run(argmax_op(), args, args.x.device, ctx);
}

bool supports(const ReduceArgs& args, const Context& ctx) {
  return is_supported(reduce_op(), args, args.x.device, ctx);
}

bool supports(const ArgmaxArgs& args, const Context& ctx) {
  return is_supported(argmax_op(), args, args.x.device, ctx);
}

}  // namespace tessera
