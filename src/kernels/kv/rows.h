// The KV cache family's tables, one per operation and library. A build without a library links
// empty tables in its place (src/kernels/rows_none*.cpp).
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

// The kernels distinguish the types of pages themselves, so that keys and values may differ.
inline RowKey key_of(const KvAppendArgs& args) { return {args.k.dtype, args.k.dtype}; }
inline RowKey key_of(const KvGatherArgs& args) { return {args.k.dtype, args.k.dtype}; }
// Bytes are copied, whatever their type.
inline RowKey key_of(const KvCopyPagesArgs&) { return {DType::u8, DType::u8}; }

}  // namespace tessera
