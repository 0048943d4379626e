// The operands of problems that are attention over a KV cache, and the arguments they become.
// SPDX-License-Identifier: MIT
#pragma once

#include <span>
#include <vector>

#include "bench/problems/builder.h"
#include "bench/problems/decode_layout.h"
#include "tessera/ops/attention.h"

namespace tessera::bench {

// The argument that each operand belongs to, in order.
using DecodeSlot = TensorView& (*)(DecodeAttentionArgs&);
using DecodeSlots = std::vector<DecodeSlot>;

DecodeSlots add_decode_operands(RowKey key, Builder& b, const DecodeOptions& o,
                                const DecodeLayout& layout);
// `views` may have more after those of the slots.
DecodeAttentionArgs decode_args(const DecodeOptions& o, const DecodeSlots& slots,
                                std::span<const TensorView> views);

// Bytes of queries, results and num_keys keys and values.
double decode_bytes(RowKey key, const DecodeOptions& o, double num_keys);

// Some sequences of a large problem of the operation.
inline constexpr int64_t kSampledSequences = 3;
Sample sample_sequences(std::string_view op, RowKey key, const Problem& whole);

}  // namespace tessera::bench
