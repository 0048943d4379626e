// The library's Hopper kernel: WGMMA and TMA, one warpgroup's softmax under another's products.
// SPDX-License-Identifier: MIT
//
// Changed    There is no code here: this is `attention_prefill`, restricted to its Hopper row. One
//            warp loads K and V by TMA; two or three warpgroups of 64 queries multiply by WGMMA,
//            which reads both from shared memory itself, and take turns.
// Cause      Fragments of K and V do not pass through registers, so shared memory is read once per
//            64 queries instead of 32, at the full rate of the tensor cores. While one warpgroup
//            computes its softmax, the tensor cores work for another.
// Predicted  0.8 to 0.9 ms: the products alone take 0.70 ms at 785 TFLOPS, the rate measured for a
//            large matrix product. Exponentials, 0.26 ms at 16 per clock and SM, and the rest of
//            the softmax hide behind them, except at the start and end of a tile: 610 to 690
//            TFLOPS.
// Measured   795.8 us, 690.80 TFLOPS; causal 456.4 us, 602.50 TFLOPS (NVIDIA H200)
// Shown by   sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active
// Profiled   88.8 %; step 05: 58.3 %
// Needs      Any seq; sm_90.
#include "ladder/attention/attention_args.h"

namespace tessera::ladder::attention {
namespace {

constexpr std::string_view kSm90Row = "attention_prefill_sm90_bf16_d128";

}  // namespace

void launch_sm90(const Problem& problem, const Context& ctx) { run_row(kSm90Row, problem, ctx); }

bool has_sm90() { return has_row(kSm90Row); }

}  // namespace tessera::ladder::attention
