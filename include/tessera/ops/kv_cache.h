// Writing to a paged KV cache: new tokens into their slots, and pages copied before they change.
// SPDX-License-Identifier: MIT
#pragma once

#include "tessera/core/context.h"
#include "tessera/core/tensor.h"

namespace tessera {

//   k_pages[slots[i] / page_size, slots[i] % page_size] = k[i]; v likewise
// A negative slot is skipped. Two tokens with one slot are the caller's mistake. A slot beyond the
// pages is refused on the CPU; a GPU skips it.
struct KvAppendArgs {
  TensorView k;        // [tokens, num_kv_heads, head_dim]; f32, f16, bf16; heads may be apart
  TensorView v;        // like k
  TensorView slots;    // i32 or i64 [tokens], contiguous: page * page_size + row
  TensorView k_pages;  // [num_pages, page_size, num_kv_heads, head_dim], dtype of k; written
  TensorView v_pages;  // like k_pages
};

//   pages[targets[i]] = pages[sources[i]]        for k and v; no target is also a source
struct KvCopyPagesArgs {
  TensorView k_pages;  // [num_pages, page_size, num_kv_heads, head_dim]; any type
  TensorView v_pages;  // like k_pages
  TensorView sources;  // i32 [count], contiguous
  TensorView targets;  // i32 [count], contiguous
};

void kv_append(const KvAppendArgs& args, const Context& ctx = {});
void kv_copy_pages(const KvCopyPagesArgs& args, const Context& ctx = {});
bool supports(const KvAppendArgs& args, const Context& ctx = {});
bool supports(const KvCopyPagesArgs& args, const Context& ctx = {});

}  // namespace tessera
