// Attention's tables, one per operation and library. A build without a library links empty
// tables in its place (src/kernels/rows_none*.cpp).
// SPDX-License-Identifier: MIT
#pragma once

#include <span>

#include "kernels/row.h"
#include "tessera/ops/attention.h"

namespace tessera::kernels {

std::span<const Row<AttentionArgs>> attention_prefill_rows_sm90();
std::span<const Row<AttentionArgs>> attention_prefill_rows();
std::span<const Row<DecodeAttentionArgs>> attention_decode_rows_sm90();
std::span<const Row<DecodeAttentionArgs>> attention_decode_rows();
std::span<const Row<MergeAttentionArgs>> attention_merge_rows_sm90();
std::span<const Row<MergeAttentionArgs>> attention_merge_rows();

}  // namespace tessera::kernels

namespace tessera {

inline RowKey key_of(const AttentionArgs& args) { return {args.q.dtype, args.out.dtype}; }
inline RowKey key_of(const DecodeAttentionArgs& args) { return {args.q.dtype, args.out.dtype}; }
inline RowKey key_of(const MergeAttentionArgs& args) { return {args.parts.dtype, args.out.dtype}; }

}  // namespace tessera
