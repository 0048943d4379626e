// The KV cache family's tables, one per operation and library. A build without CUDA, or without
// Hopper, links empty tables in their place (rows_none.cpp, rows_sm90_none.cpp).
// SPDX-License-Identifier: MIT
#pragma once

#include <span>

#include "kernels/row.h"
#include "tessera/ops/kv_cache.h"

namespace tessera::kernels {

struct KvCacheRows {
  std::span<const Row<KvAppendArgs>> append;
  std::span<const Row<KvGatherArgs>> gather;
  std::span<const Row<KvCopyPagesArgs>> copy_pages;
};

const KvCacheRows& kv_cache_rows();
const KvCacheRows& kv_cache_rows_sm90();

}  // namespace tessera::kernels

namespace tessera {

// The types of pages are told apart inside the kernels, so that keys and values may differ.
inline RowKey key_of(const KvAppendArgs& args) { return {args.k.dtype, args.k.dtype}; }
inline RowKey key_of(const KvGatherArgs& args) { return {args.k.dtype, args.k.dtype}; }
// Bytes are copied, whatever they stand for.
inline RowKey key_of(const KvCopyPagesArgs&) { return {DType::u8, DType::u8}; }

}  // namespace tessera
