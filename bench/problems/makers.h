// One function per operation that returns its maker; problem_makers() lists them.
// SPDX-License-Identifier: MIT
#pragma once

#include "bench/problem.h"

namespace tessera::bench {

ProblemMaker rms_norm_maker();
ProblemMaker layer_norm_maker();
ProblemMaker rope_maker();
ProblemMaker activation_maker();
ProblemMaker softmax_maker();
ProblemMaker embedding_maker();
ProblemMaker copy_maker();
ProblemMaker quantize_maker();
ProblemMaker dequantize_maker();
ProblemMaker reduce_maker();
ProblemMaker argmax_maker();
ProblemMaker scale_maker();
ProblemMaker gemm_maker();
ProblemMaker gemm_2_4_maker();
ProblemMaker norm_gemm_maker();
ProblemMaker attention_prefill_maker();
ProblemMaker attention_decode_maker();
ProblemMaker attention_append_maker();
ProblemMaker attention_merge_maker();
ProblemMaker attention_cascade_maker();
ProblemMaker kv_append_maker();
ProblemMaker kv_gather_maker();
ProblemMaker kv_copy_pages_maker();
ProblemMaker sample_maker();
ProblemMaker token_logprobs_maker();

}  // namespace tessera::bench
