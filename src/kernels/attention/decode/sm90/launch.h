// The launchers that the sm90 table of decode attention points at, and what they accept.
// SPDX-License-Identifier: MIT
#pragma once

#include "tessera/core/context.h"
#include "tessera/ops/attention.h"

namespace tessera::kernels::decode_sm90 {

inline int64_t q_len_of(const DecodeAttentionArgs& args) {
  return args.q.rank == 4 ? args.q.size(1) : 1;
}

// Every query sees all keys of its sequence, and scores are only scaled.
inline bool is_plain(const DecodeAttentionArgs& args) {
  return q_len_of(args) == 1 && args.window == 0 && args.softcap == 0.0f &&
         args.alibi_slopes.data == nullptr && args.tree.data == nullptr;
}

// Queries of type Q with heads of kD elements; keys in kFormat, values in traits(kFormat).values.
template <class Q, KvFormat kFormat, int kD>
void launch_decode(const DecodeAttentionArgs& args, const Context& ctx);

// A balanced assignment, which is not batch-invariant, over plain pages.
template <class Q, int kD>
void launch_streaming(const DecodeAttentionArgs& args, const Context& ctx);

}  // namespace tessera::kernels::decode_sm90
