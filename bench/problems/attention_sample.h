// Some queries of an attention problem that is too large for the CPU.
// SPDX-License-Identifier: MIT
#pragma once

#include "bench/problems/attention_layout.h"

namespace tessera::bench {

// Not for problems whose result depends on a query's position or batch index beyond what it sees;
// nor for ragged problems, which are small tests.
bool can_sample(const AttentionOptions& o);

// Queries of all sequences, including the first and the last, each as a sequence of one query over
// the same k and v; batched ones become pages as long as a sequence. What a query sees is given as
// intervals, so that the CPU's interpretation of the mask is not used to check the mask.
Sample sample_attention(const AttentionOptions& o, const AttentionLayout& layout,
                        const Problem& whole);

}  // namespace tessera::bench
