// Attention on the CPU: the fallback, and the oracle of the GPU rows. Arguments have been checked
// by src/ops; the page numbers, lengths and starts inside the tensors are checked here, before
// anything is written.
// SPDX-License-Identifier: MIT
#pragma once

#include "cpu/simd_dispatch.h"
#include "tessera/ops/attention.h"

namespace tessera::cpu {

void attention_prefill(const AttentionArgs& args);
void attention_decode(const DecodeAttentionArgs& args);
void attention_merge(const MergeAttentionArgs& args);

// The first two by the build for one of simd_levels(); above they take the best. From avx2 up all
// levels give the same bits; the baseline of x86-64 has no fused multiply-add and rounds more
// often.
void attention_prefill(const AttentionArgs& args, SimdLevel level);
void attention_decode(const DecodeAttentionArgs& args, SimdLevel level);

// Whether attention_prefill runs by vectors, in float and with the bits of attention_decode: a
// causal mask over pages, with a window and a cap at most. All other calls go to
// attention_in_double, which takes every call.
bool runs_by_vectors(const AttentionArgs& args);
void attention_in_double(const AttentionArgs& args);

// Whether attention_decode does: one plain token a sequence over plain pages. All other calls go to
// decode_in_double, which takes every call.
bool runs_by_vectors(const DecodeAttentionArgs& args);
void decode_in_double(const DecodeAttentionArgs& args);

}  // namespace tessera::cpu
