// Attention on the CPU: the fallback, and the reference for the GPU rows. src/ops has checked the
// arguments; page numbers, lengths and starts inside the tensors are checked here, before anything
// is written.
// SPDX-License-Identifier: MIT
#pragma once

#include "cpu/simd_dispatch.h"
#include "tessera/ops/attention.h"

namespace tessera::cpu {

void attention_prefill(const AttentionArgs& args);
void attention_decode(const DecodeAttentionArgs& args);
void attention_merge(const MergeAttentionArgs& args);

// The same compiled for one of simd_levels(); the functions above use the best level. From avx2 up
// all levels give the same bits; the x86-64 baseline has no fused multiply-add and rounds more
// often.
void attention_prefill(const AttentionArgs& args, SimdLevel level);
void attention_decode(const DecodeAttentionArgs& args, SimdLevel level);

// Whether attention_prefill uses the vectorised implementation, in float, with the same bits as
// attention_decode: a causal mask over pages, with at most a window and a softcap. All other calls
// go to attention_in_double, which takes every call.
bool runs_by_vectors(const AttentionArgs& args);
void attention_in_double(const AttentionArgs& args);

// The same for attention_decode: one token per sequence over pages in any format, with at most a
// window and a softcap. All other calls go to decode_in_double, which takes every call.
bool runs_by_vectors(const DecodeAttentionArgs& args);
void decode_in_double(const DecodeAttentionArgs& args);

}  // namespace tessera::cpu
