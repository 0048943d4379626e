// The empty tables of a build without the sm90 library.
// SPDX-License-Identifier: MIT
#include "kernels/attention/rows.h"

namespace tessera::kernels {

std::span<const Row<AttentionArgs>> attention_prefill_rows_sm90() { return {}; }
std::span<const Row<DecodeAttentionArgs>> attention_decode_rows_sm90() { return {}; }
std::span<const Row<MergeAttentionArgs>> attention_merge_rows_sm90() { return {}; }

}  // namespace tessera::kernels
