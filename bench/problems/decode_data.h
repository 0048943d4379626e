// The numbers in decode problems, in every format of a KV cache, and how far results may be apart.
// SPDX-License-Identifier: MIT
#pragma once

#include "bench/problems/builder.h"
#include "bench/problems/decode_layout.h"

namespace tessera::bench {

// What a call is given beside its tensors.
struct DecodeScalars {
  float scale, softcap;
};
DecodeScalars decode_scalars(const DecodeOptions& o);

// The type of pages, and how many f16 a row's scale has: 0 where it has none of its own.
DType stored_dtype(KvStored stored, DType plain);
int64_t scales_per_row(KvStored stored);

void fill_decode_queries(Operand& q, const DecodeOptions& o, const DecodeLayout& layout,
                         Random random);
// Keys or values, and their scales, where they have some. What no sequence holds, what lies in the
// tail instead, and pages no query sees, stay poisoned: NaN, or with a scale that is.
void fill_cache(Operand& pages, Operand* scales, const DecodeOptions& o, const DecodeLayout& layout,
                bool are_values, Random random);
void fill_tail(Operand& tail, const DecodeOptions& o, const DecodeLayout& layout, Random random);
void fill_decode_sinks(Operand& sinks, const DecodeOptions& o, Random random);
void fill_decode_slopes(Operand& slopes, const DecodeOptions& o);

Bound decode_bound(RowKey key, const DecodeOptions& o);
Bound decode_lse_bound(RowKey key, const DecodeOptions& o);

}  // namespace tessera::bench
