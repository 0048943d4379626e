// The library's own kernel, through its public function.
// SPDX-License-Identifier: MIT
//
// Changed    There is no code here: this is `gemm`, restricted to the library's own rows by asking
//            for batch invariance, which the vendor's row does not offer.
// Cause      What step 13 lacks: any m, n and k, a tile chosen for the shape, epilogues, a split of
//            k where tiles do not fill the chip.
// Predicted  The schedule of step 13, for every shape: at least as fast as cuBLAS.
// Measured   213.3 us, 644.30 TFLOPS, 97.9 % of cuBLAS (NVIDIA H200, 4096 cubed)
// Shown by   sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active
// Profiled   94.1 %; step 13: 94.0 %
// Needs      Any m, n, k.
#include "ladder/gemm/gemm_args.h"

namespace tessera::ladder {
namespace {

constexpr Context invariant(Stream stream) {
  return {.stream = stream, .row = {}, .batch_invariant = true};
}

}  // namespace

void launch_production(const Problem& problem, const Context& ctx) {
  gemm(gemm_args(DType::bf16, problem), invariant(ctx.stream));
}

bool has_production() {
  constexpr int kSize = 256;
  const Tensor matrices(DType::bf16, {3, kSize, kSize}, cuda_device());
  Bf16* data = matrices.view().as<Bf16>();
  const Problem problem{data, data + kSize * kSize, data + 2 * kSize * kSize, kSize, kSize, kSize};
  return supports(gemm_args(DType::bf16, problem), invariant(nullptr));
}

}  // namespace tessera::ladder
