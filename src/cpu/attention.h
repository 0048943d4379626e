// Attention over a paged KV cache on the CPU: the fallback, and the oracle of the GPU rows.
// Arguments have been checked by src/ops; the page numbers, lengths and starts inside the tensors
// are checked here, before anything is written.
// SPDX-License-Identifier: MIT
#pragma once

#include "cpu/simd_dispatch.h"
#include "tessera/ops/attention.h"

namespace tessera::cpu {

void attention_prefill(const PrefillAttentionArgs& args);
void attention_decode(const DecodeAttentionArgs& args);

// By the build for one of simd_levels(); the two above take the best. From avx2 up all levels give
// the same bits; the baseline of x86-64 has no fused multiply-add and rounds more often.
void attention_prefill(const PrefillAttentionArgs& args, SimdLevel level);
void attention_decode(const DecodeAttentionArgs& args, SimdLevel level);

}  // namespace tessera::cpu
