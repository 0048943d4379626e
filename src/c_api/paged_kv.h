// The KV cache that operations read, from the struct of arguments of any of them.
// SPDX-License-Identifier: MIT
#pragma once

#include <string_view>

#include "c_api/call.h"
#include "c_api/dlpack.h"
#include "tessera/ops/kv_cache.h"

namespace tessera::c_api {

// Every such struct has these tensors under the same names.
template <class Args>
PagedKv to_paged_kv(const Args& c, std::string_view op) {
  return {.k_pages = required_view(c.k_pages, {op, "k_pages"}, c.k_format),
          .v_pages = required_view(c.v_pages, {op, "v_pages"}, c.v_format),
          .page_table = view_or_empty(c.page_table, {op, "page_table"}),
          .seq_lens = required_view(c.seq_lens, {op, "seq_lens"}),
          .k_scales = view_or_empty(c.k_scales, {op, "k_scales"}),
          .v_scales = view_or_empty(c.v_scales, {op, "v_scales"}),
          .k_tail = view_or_empty(c.k_tail, {op, "k_tail"}),
          .tails = view_or_empty(c.tails, {op, "tails"})};
}

}  // namespace tessera::c_api
