// What operations ask of a KV cache, short of what its tensors hold.
// SPDX-License-Identifier: MIT
#pragma once

#include <string_view>

#include "ops/check.h"
#include "tessera/ops/kv_cache.h"

namespace tessera::ops {

// The words a refusal calls the parts of a cache by.
struct KvNames {
  std::string_view k_pages, v_pages, k_scales, v_scales, k_tail, tails, page_table, seq_lens;
};

// Whether an optional tensor is there.
inline bool is_given(const TensorView& view) { return view.rank != 0 || view.data != nullptr; }

// Pages with scales that fit their type, on the device of `first`. Columns may share scales of
// keys.
void check_kv_pages(const Named& pages, const Named& scales, const Named& first, bool are_keys);

// Where keys have scales by column: k_tail, with what says which tail is whose; elsewhere neither.
void check_kv_tail(const Named& k_pages, const TensorView& k_scales, const Named& k_tail,
                   const Named& which, const Named& first);

// All of a cache that is read. The sizes of k_pages and v_pages agree.
void check_paged_kv(const PagedKv& kv, const KvNames& names, const Named& first);

}  // namespace tessera::ops
