// norm_gemm: checks and dispatch.
// SPDX-License-Identifier: MIT
#include "tessera/ops/norm_gemm.h"

#include <optional>

#include "core/text.h"
#include "cpu/elementwise.h"
#include "cpu/gemm.h"
#include "kernels/gemm/rows.h"
#include "ops/check.h"
#include "ops/dispatch.h"
#include "ops/product_check.h"

namespace tessera {
namespace {

using namespace ops;

void check_norm_gemm(const NormGemmArgs& args) {
  const auto& [norm, product] = args;
  check_rms_norm(norm);
  check_gemm(product);
  if (norm.residual) {
    fail(concat("norm_gemm: norm.residual is given, ", to_string(*norm.residual),
                "; let the product before this one add it"));
  }
  expect_same_tensor({"norm_gemm: norm.out", norm.out}, {"gemm.a", product.a});
  const std::optional<TensorView>& scale = norm.token_scale ? norm.token_scale : norm.static_scale;
  if (scale.has_value() != product.a_scale.has_value()) {
    fail(concat("norm_gemm: the norm writes ", name(norm.out.dtype), " and gemm.a_scale is ",
                product.a_scale ? "given" : "missing", "; it is for codes, and is their scale"));
  }
  if (scale) {
    expect_same_tensor({"norm_gemm: the norm's scale", *scale}, {"gemm.a_scale", *product.a_scale});
  }
  const Named out{"norm_gemm: gemm.out", product.out};
  expect_apart(out, {"norm_gemm: norm.x", norm.x});
  expect_apart(out, {"norm_gemm: norm.weight", norm.weight});
}

void run_on_cpu(const NormGemmArgs& args) {
  cpu::rms_norm(args.norm);
  cpu::gemm(args.gemm);
}

const Op<NormGemmArgs>& norm_gemm_op() {
  static const Op<NormGemmArgs> op{
      "norm_gemm", &check_norm_gemm, &run_on_cpu, kernels::norm_gemm_rows_sm90(), {}};
  return op;
}

}  // namespace

void norm_gemm(const NormGemmArgs& args, const Context& ctx) {
  run(norm_gemm_op(), args, args.gemm.a.device, ctx);
}

bool supports(const NormGemmArgs& args, const Context& ctx) {
  return ctx.product_inputs == nullptr &&
         is_supported(norm_gemm_op(), args, args.gemm.a.device, ctx);
}

}  // namespace tessera
