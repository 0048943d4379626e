// The matrix products over DLPack tensors, dense and 2:4 sparse, and what prepares their weights.
// SPDX-License-Identifier: MIT
#include "tessera/ops/gemm.h"

#include "c_api/call.h"
#include "c_api/dlpack.h"
#include "c_api/status.h"
#include "core/text.h"
#include "tessera/core/error.h"
#include "tessera/ops/sparse.h"

namespace tessera::c_api {
namespace {

std::optional<Activation> to_activation(int32_t value) {
  if (value == TESSERA_NO_ACTIVATION) return std::nullopt;
  if (value < 0 || value > TESSERA_GELU_TANH) {
    fail(concat("gemm: activation is ", value, "; want 0 to ", int{TESSERA_GELU_TANH}, ", or ",
                int{TESSERA_NO_ACTIVATION}, " for none"));
  }
  return static_cast<Activation>(value);
}

void expect_known(int32_t flags) {
  constexpr int32_t kKnown = TESSERA_GEMM_GATED | TESSERA_GEMM_ALLOW_TF32 | TESSERA_GEMM_STATIC_B;
  if ((flags & ~kKnown) == 0) return;
  fail(concat("gemm: flags is ", flags, "; this library knows the bits of ", kKnown));
}

}  // namespace
}  // namespace tessera::c_api

using namespace tessera;
using namespace tessera::c_api;

TesseraStatus tessera_gemm(const DLTensor* a, const DLTensor* b, const DLTensor* out,
                           const DLTensor* bias, const DLTensor* residual, const DLTensor* b_scale,
                           const DLTensor* out_scale, int32_t activation, int32_t flags,
                           int32_t out_format, const TesseraContext* ctx) {
  return guarded([&] {
    expect_known(flags);
    const GemmArgs args{.a = required_view(a, {"gemm", "a"}),
                        .b = Weight{.values = required_view(b, {"gemm", "b"}),
                                    .scale = optional_view(b_scale, {"gemm", "b_scale"}),
                                    .is_static = (flags & TESSERA_GEMM_STATIC_B) != 0},
                        .bias = optional_view(bias, {"gemm", "bias"}),
                        .out = required_view(out, {"gemm", "out"}, out_format),
                        .activation = to_activation(activation),
                        .is_gated = (flags & TESSERA_GEMM_GATED) != 0,
                        .residual = optional_view(residual, {"gemm", "residual"}),
                        .out_scale = optional_view(out_scale, {"gemm", "out_scale"}),
                        .allow_tf32 = (flags & TESSERA_GEMM_ALLOW_TF32) != 0};
    call("gemm", &gemm, args, ctx);
  });
}

TesseraStatus tessera_pack_gate_up(const DLTensor* gate, const DLTensor* up, const DLTensor* out,
                                   const TesseraContext* ctx) {
  return guarded([&] {
    const PackGateUpArgs args{.gate = required_view(gate, {"pack_gate_up", "gate"}),
                              .up = required_view(up, {"pack_gate_up", "up"}),
                              .out = required_view(out, {"pack_gate_up", "out"})};
    call_step("pack_gate_up", &pack_gate_up, args, ctx);
  });
}

TesseraStatus tessera_prune_2_4(const DLTensor* w, const DLTensor* out_values,
                                const DLTensor* out_meta, const TesseraContext* ctx) {
  return guarded([&] {
    const Prune24Args args{.w = required_view(w, {"prune_2_4", "w"}),
                           .out_values = required_view(out_values, {"prune_2_4", "out_values"}),
                           .out_meta = required_view(out_meta, {"prune_2_4", "out_meta"})};
    call_step("prune_2_4", &prune_2_4, args, ctx);
  });
}

TesseraStatus tessera_expand_2_4(const DLTensor* values, const DLTensor* meta, const DLTensor* out,
                                 const TesseraContext* ctx) {
  return guarded([&] {
    const Expand24Args args{.values = required_view(values, {"expand_2_4", "values"}),
                            .meta = required_view(meta, {"expand_2_4", "meta"}),
                            .out = required_view(out, {"expand_2_4", "out"})};
    call_step("expand_2_4", &expand_2_4, args, ctx);
  });
}

TesseraStatus tessera_gemm_2_4(const DLTensor* a, const DLTensor* values, const DLTensor* meta,
                               const DLTensor* out, const TesseraContext* ctx) {
  return guarded([&] {
    const Gemm24Args args{.a = required_view(a, {"gemm_2_4", "a"}),
                          .values = required_view(values, {"gemm_2_4", "values"}),
                          .meta = required_view(meta, {"gemm_2_4", "meta"}),
                          .out = required_view(out, {"gemm_2_4", "out"})};
    call("gemm_2_4", &gemm_2_4, args, ctx);
  });
}
