// What operations require of a KV cache: shapes, types and devices, not the contents of its
// tensors.
// SPDX-License-Identifier: MIT
#pragma once

#include <string_view>

#include "ops/check.h"
#include "tessera/ops/kv_cache.h"

namespace tessera::ops {

// The names of a cache's parts in error messages.
struct KvNames {
  std::string_view k_pages, v_pages, k_scales, v_scales, k_tail, tails, page_table, seq_lens;
};

// Whether an optional tensor was given.
inline bool is_given(const TensorView& view) { return view.rank != 0 || view.data != nullptr; }

void check_kv_append(const KvAppendArgs& args);

// Pages with scales that fit their type, on the device of `first`. Only keys may have scales by
// column.
void check_kv_pages(const Named& pages, const Named& scales, const Named& first, bool are_keys);

// Keys with scales by column need k_tail and `which`, the tails of the sequences; others have
// neither.
void check_kv_tail(const Named& k_pages, const TensorView& k_scales, const Named& k_tail,
                   const Named& which, const Named& first);

// Everything of a cache that is read. k_pages and v_pages must have the same shape.
void check_paged_kv(const PagedKv& kv, const KvNames& names, const Named& first);

}  // namespace tessera::ops
