// The data of attention problems, and the error bounds of their results.
// SPDX-License-Identifier: MIT
#pragma once

#include "bench/problems/attention_layout.h"
#include "bench/problems/builder.h"

namespace tessera::bench {

// The numbers a call is given besides its tensors.
struct AttentionScalars {
  float scale, softcap, dropout_rate;
};
AttentionScalars attention_scalars(const AttentionOptions& o);
inline constexpr uint64_t kDropoutSeed = 0x1234567890abcdefULL;

void fill_queries(Operand& q, const AttentionOptions& o, const AttentionLayout& layout,
                  Random random);
// k or v. Rows of no sequence, and pages that no query sees, stay poisoned: NaN.
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
