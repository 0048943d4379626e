// Some queries of an attention problem that is too large for the CPU.
// SPDX-License-Identifier: MIT
#pragma once

#include "bench/problems/attention_layout.h"

namespace tessera::bench {

// Not where a result depends on a query's position beyond what it sees, or on its place in the
// batch; nor for ragged problems, which are tests and small.
bool can_sample(const AttentionOptions& o);

// Queries of all sequences, the first and the last among them, each as a sequence of one query over
// the same k and v: a batch's are pages as long as a sequence. What a query sees is spelt out in
// intervals, so that the CPU's own reading of the mask is not what a mask is held against.
Sample sample_attention(const AttentionOptions& o, const AttentionLayout& layout,
                        const Problem& whole);

}  // namespace tessera::bench
