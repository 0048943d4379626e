// The library's portable kernel: 32 queries a warp, and cp.async one block of keys ahead.
// SPDX-License-Identifier: MIT
//
// Changed    There is no code here: this is `attention_prefill`, restricted to one row. Compared
//            with step 04 a warp has 32 queries, K and V have two stages, weights are computed
//            between the products, and sums are rescaled only if a maximum grew.
// Cause      A fragment of K or V then serves two products, so shared memory is read for 20 bytes
//            per score instead of 36, and tiles arrive while the previous ones are multiplied.
// Predicted  1.4 to 1.6 ms: fragments are 21.5 GB, 0.65 ms at 128 bytes per clock and SM; products
//            0.55 Tflop, 0.9 ms at the 62 % of 989 TFLOPS that mma.sync reaches; exponentials 0.26
//            ms. Two blocks per SM hide most of the two smaller parts behind the largest: 350 to
//            390 TFLOPS.
// Measured   1522 us, 361.10 TFLOPS; causal 870.6 us, 315.80 TFLOPS (NVIDIA H200)
// Shown by   sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active
// Profiled   58.3 %; step 04: 40.9 %
// Needs      Any seq.
#include "ladder/attention/attention_args.h"

namespace tessera::ladder::attention {
namespace {

constexpr std::string_view kRow = "attention_prefill_bf16_d128";

}  // namespace

void launch_portable(const Problem& problem, const Context& ctx) { run_row(kRow, problem, ctx); }

bool has_portable() { return has_row(kRow); }

}  // namespace tessera::ladder::attention
