// The data of decode problems, in every format of a KV cache, and the error bounds of their
// results.
// SPDX-License-Identifier: MIT
#pragma once

#include "bench/problems/builder.h"
#include "bench/problems/decode_layout.h"

namespace tessera::bench {

// The numbers a call is given besides its tensors.
struct DecodeScalars {
  float scale, softcap;
};
DecodeScalars decode_scalars(const DecodeOptions& o);

void fill_decode_queries(Operand& q, const DecodeOptions& o, const DecodeLayout& layout,
                         Random random);
// Fills keys or values, and their scales if they have any. Rows of no sequence, rows that lie in
// the tail instead, and pages that no query sees stay poisoned: NaN, or with a NaN scale.
void fill_cache(Operand& pages, Operand* scales, const DecodeOptions& o, const DecodeLayout& layout,
                bool are_values, Random random);
void fill_tail(Operand& tail, const DecodeOptions& o, const DecodeLayout& layout, Random random);
void fill_decode_sinks(Operand& sinks, const DecodeOptions& o, Random random);
void fill_decode_slopes(Operand& slopes, const DecodeOptions& o);

Bound decode_bound(RowKey key, const DecodeOptions& o);
Bound decode_lse_bound(RowKey key, const DecodeOptions& o);

}  // namespace tessera::bench
