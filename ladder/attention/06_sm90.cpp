// The library's Hopper kernel: WGMMA and TMA, one warpgroup's softmax under another's products.
// SPDX-License-Identifier: MIT
//
// Changed    Nothing is written here: this is `attention_prefill`, held to its Hopper row. A warp
//            asks TMA for K and V; two or three warpgroups of 64 queries multiply by WGMMA, which
//            reads both from shared memory itself, and take turns.
// Cause      No fragments of K and V pass through registers, so shared memory is read once for 64
//            queries and not for 32, at the full rate of the tensor cores; and while one
//            warpgroup's scores become weights, the tensor cores work for another.
// Predicted  0.8 to 0.9 ms: products alone are 0.70 ms at the 785 TFLOPS that a large matrix
//            product was seen to reach. Exponentials, 0.26 ms at 16 a clock and SM, and the rest
//            of the softmax hide behind them but for the start and end of a tile: 610 to 690
//            TFLOPS.
// Measured   795.8 us, 690.80 TFLOPS; causal 456.4 us, 602.50 TFLOPS (NVIDIA H200)
// Shown by   sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active
// Profiled   88.8 %; step 05: 58.3 %
// Needs      Any seq; sm_90.
#include "ladder/attention/attention_args.h"

namespace tessera::ladder::attention {
namespace {

constexpr std::string_view kRow = "attention_prefill_sm90_bf16_d128";

}  // namespace

void launch_sm90(const Problem& problem, const Context& ctx) { run_row(kRow, problem, ctx); }

bool has_sm90() { return has_row(kRow); }

}  // namespace tessera::ladder::attention
