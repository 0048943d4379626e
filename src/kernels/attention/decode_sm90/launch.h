// The launchers that the sm90 table of decode attention points at, and what they take.
// SPDX-License-Identifier: MIT
#pragma once

#include "tessera/core/context.h"
#include "tessera/ops/attention.h"

namespace tessera::kernels {

// Formats, as kernels know them (kv_format.cuh).
template <class T>
struct KvPlain;
struct KvE4m3;
struct KvE5m2;
struct KvInt8;
struct KvUint8;
struct KvInt4;
struct KvInt4Columns;

inline int64_t q_len_of_decode(const DecodeAttentionArgs& args) {
  return args.q.rank == 4 ? args.q.size(1) : 1;
}

// Whether every query sees all keys of its sequence and nothing happens to a score but its scale.
inline bool is_plain(const DecodeAttentionArgs& args) {
  return q_len_of_decode(args) == 1 && args.window == 0 && args.softcap == 0.0f &&
         args.alibi_slopes.data == nullptr && args.tree.data == nullptr;
}

// Keys in a format and values in the one that goes with it, heads of kD elements, queries of type
// Q.
template <class Q, class Format, int kD>
void launch_decode_sm90(const DecodeAttentionArgs& args, const Context& ctx);

// The same in a balanced assignment, which shows batch mates: for calls that are accepted here.
template <class Q, class Format, int kD>
void launch_decode_streaming(const DecodeAttentionArgs& args, const Context& ctx);
bool accepts_decode_streaming(const DecodeAttentionArgs& args);

// What depends on neither: layouts, counts and options. Scales lie beside rows of a page and head.
bool accepts_decode_sm90(const DecodeAttentionArgs& args, int64_t head_dim, KvFormat format,
                         DType pages);

}  // namespace tessera::kernels
