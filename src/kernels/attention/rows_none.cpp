// The empty tables of a build without the portable library.
// SPDX-License-Identifier: MIT
#include "kernels/attention/rows.h"

namespace tessera::kernels {

std::span<const Row<AttentionArgs>> attention_prefill_rows() { return {}; }
std::span<const Row<DecodeAttentionArgs>> attention_decode_rows() { return {}; }
std::span<const Row<MergeAttentionArgs>> attention_merge_rows() { return {}; }

}  // namespace tessera::kernels
