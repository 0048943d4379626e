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

// Keys and values in one format, heads of kD elements, queries of type Q.
template <class Q, class Format, int kD>
void launch_decode_sm90(const DecodeAttentionArgs& args, const Context& ctx);

// What depends on neither: layouts, counts and options. Scales lie beside rows of a page and head.
bool accepts_decode_sm90(const DecodeAttentionArgs& args, int64_t head_dim, KvFormat format,
                         DType pages);

}  // namespace tessera::kernels
