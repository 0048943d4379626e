// copy: what it takes, and where it runs.
// SPDX-License-Identifier: MIT
#include "tessera/ops/copy.h"

#include "cpu/elementwise.h"
#include "kernels/elementwise/rows.h"
#include "ops/check.h"
#include "ops/dispatch.h"

namespace tessera {
namespace {

using namespace ops;

void check_copy(const CopyArgs& args) {
  const Named x{"copy: x", args.x};
  const Named out{"copy: out", args.out};
  expect_tensor(x, kWholeBytes);
  expect_tensor(out, kWholeBytes, x);
  expect_dtype_of(out, x);
  expect_shape_of(out, x);
  expect_writable(out);
  expect_apart(out, x);
}

const Op<CopyArgs>& copy_op() {
  static const Op<CopyArgs> op{"copy", &check_copy, &cpu::copy,
                               kernels::elementwise_rows_sm90().copy,
                               kernels::elementwise_rows().copy};
  return op;
}

}  // namespace

void copy(const CopyArgs& args, const Context& ctx) { run(copy_op(), args, args.x.device, ctx); }

bool supports(const CopyArgs& args, const Context& ctx) {
  return is_supported(copy_op(), args, args.x.device, ctx);
}

}  // namespace tessera
