// Attention's tables, one per operation and library. A build without a library links empty
// tables in its place (src/kernels/rows_none*.cpp).
// SPDX-License-Identifier: MIT
#pragma once

#include <span>

#include "kernels/row.h"
#include "tessera/ops/attention.h"
#include "tessera/ops/attention_append.h"

namespace tessera::kernels {

std::span<const Row<AttentionArgs>> attention_prefill_rows_sm90();
std::span<const Row<AttentionArgs>> attention_prefill_rows();
std::span<const Row<DecodeAttentionArgs>> attention_decode_rows_sm90();
std::span<const Row<DecodeAttentionArgs>> attention_decode_rows();
// Without a kernel of its own it is made of the other operations (ops/attention_rows.h).
std::span<const Row<AppendAttentionArgs>> attention_append_rows_sm90();
std::span<const Row<MergeAttentionArgs>> attention_merge_rows_sm90();
std::span<const Row<MergeAttentionArgs>> attention_merge_rows();

}  // namespace tessera::kernels

namespace tessera {

inline RowKey key_of(const AttentionArgs& args) { return {args.q.dtype, args.out.dtype}; }
inline RowKey key_of(const DecodeAttentionArgs& args) { return {args.q.dtype, args.out.dtype}; }
inline RowKey key_of(const AppendAttentionArgs& args) { return key_of(args.decode); }
inline RowKey key_of(const MergeAttentionArgs& args) { return {args.parts.dtype, args.out.dtype}; }

}  // namespace tessera
