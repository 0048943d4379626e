// gemm: what it takes, and where it runs.
// SPDX-License-Identifier: MIT
#include "tessera/ops/gemm.h"

#include "core/text.h"
#include "cpu/gemm.h"
#include "kernels/gemm/rows.h"
#include "ops/check.h"
#include "ops/dispatch.h"

namespace tessera {
namespace {

using namespace ops;

void expect_matrix(const Named& tensor) {
  expect_rank(tensor, 2);
  expect_rows(tensor);
}

// One scale for each row of b, or for each of equal groups along it.
void check_scale(const GemmArgs& args, const Named& a) {
  const bool has_codes = args.b.dtype == DType::i8;
  if (args.b_scale.has_value() != has_codes) {
    fail(concat("gemm: b is ", to_string(args.b),
                has_codes ? " and has no b_scale; codes need one scale for each row or group"
                          : " and b_scale is given; scales are for a b of i8: leave them out"));
  }
  if (!has_codes) return;
  const Named scale{"gemm: b_scale", *args.b_scale};
  expect_tensor(scale, {DType::f32}, a);
  expect_contiguous(scale);
  const TensorView& view = scale.view;
  const int64_t k = args.b.size(1);
  const bool is_per_row = view.rank == 1 && view.size(0) == args.b.size(0);
  const bool is_per_group = view.rank == 2 && view.size(0) == args.b.size(0) &&
                            (k == 0 || (view.size(1) > 0 && k % view.size(1) == 0));
  if (is_per_row || is_per_group) return;
  fail(concat("gemm: b_scale is ", to_string(view), " and b is ", to_string(args.b),
              "; its shape must be [n], or [n, groups] with groups that divide k"));
}

void check_gemm(const GemmArgs& args) {
  const Named a{"gemm: a", args.a};
  const Named b{"gemm: b", args.b};
  const Named out{"gemm: out", args.out};
  expect_tensor(a, kFloats);
  expect_matrix(a);
  expect_tensor(b, {args.a.dtype, DType::i8}, a);
  expect_matrix(b);
  if (args.a.size(1) != args.b.size(1)) {
    fail(concat("gemm: a is ", to_string(args.a), " and b is ", to_string(args.b),
                "; a is [m, k] and b [n, k]: they must agree in k"));
  }
  check_scale(args, a);
  expect_tensor(out, {args.a.dtype, DType::f32}, a);
  expect_matrix(out);
  if (args.out.size(0) != args.a.size(0) || args.out.size(1) != args.b.size(0)) {
    fail(concat("gemm: out is ", to_string(args.out), "; for this a and b it must be [",
                args.a.size(0), ", ", args.b.size(0), "]"));
  }
  expect_writable(out);
  expect_apart(out, a);
  expect_apart(out, b);
  if (args.b_scale) expect_apart(out, {"gemm: b_scale", *args.b_scale});
  if (!args.bias) return;
  const Named bias{"gemm: bias", *args.bias};
  expect_tensor(bias, kFloats, a);
  expect_dtype_of(bias, a);
  expect_rank(bias, 1);
  expect_one_each(bias, args.b.size(0), "row of b");
  expect_apart(out, bias);
}

const Op<GemmArgs>& gemm_op() {
  static const Op<GemmArgs> op{"gemm",
                               &check_gemm,
                               &cpu::gemm,
                               kernels::gemm_rows_sm90(),
                               kernels::gemm_rows(),
                               kernels::gemm_rows_cublaslt()};
  return op;
}

}  // namespace

void gemm(const GemmArgs& args, const Context& ctx) { run(gemm_op(), args, args.a.device, ctx); }

bool supports(const GemmArgs& args, const Context& ctx) {
  return is_supported(gemm_op(), args, args.a.device, ctx);
}

}  // namespace tessera
