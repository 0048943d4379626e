// The numbers in attention problems, and how far results may be apart.
// SPDX-License-Identifier: MIT
#pragma once

#include "bench/problems/attention_layout.h"
#include "bench/problems/builder.h"

namespace tessera::bench {

// What a call is given beside its tensors.
struct AttentionScalars {
  float scale, softcap, dropout_rate;
};
AttentionScalars attention_scalars(const AttentionOptions& o);
inline constexpr uint64_t kDropoutSeed = 0x1234567890abcdefULL;

void fill_queries(Operand& q, const AttentionOptions& o, const AttentionLayout& layout,
                  Random random);
// k or v. What no sequence holds, and pages no query sees, stay poisoned: NaN.
void fill_keys(Operand& k, const AttentionOptions& o, const AttentionLayout& layout, Random random);
void fill_values(Operand& v, const AttentionOptions& o, const AttentionLayout& layout,
                 Random random);
void fill_sinks(Operand& sinks, const AttentionOptions& o, Random random);
void fill_slopes(Operand& slopes, const AttentionOptions& o);
// One of q_scale, k_scale and v_scale: 0, 1 or 2.
void fill_quant_scale(Operand& scale, const AttentionOptions& o, int which);

Bound attention_bound(RowKey key, const AttentionOptions& o);
Bound lse_bound(RowKey key, const AttentionOptions& o);

}  // namespace tessera::bench
