// A layer's attention: what is appended to the cache, and what each kind of token reads of it.
// SPDX-License-Identifier: MIT
#include "model/llama.h"
#include "tessera/ops/attention.h"
#include "tessera/ops/kv_cache.h"
#include "tessera/ops/rope.h"

namespace tessera::model {
namespace {

// Columns [begin, begin + num_heads * head_dim) of a matrix as [rows, num_heads, head_dim].
TensorView as_heads(const TensorView& matrix, int64_t begin, int64_t num_heads, int64_t head_dim) {
  TensorView heads = matrix.slice(1, begin, begin + num_heads * head_dim);
  heads.rank = 3;
  heads.shape = {matrix.size(0), num_heads, head_dim};
  heads.strides = {matrix.stride(0), head_dim, 1};
  return heads;
}

// Pages as the tokens they have room for, one after the other.
TensorView as_tokens(const TensorView& pages) {
  return TensorView::contiguous(pages.data, pages.dtype,
                                {pages.size(0) * pages.size(1), pages.size(2), pages.size(3)},
                                pages.device);
}

// What the call before took is free again: calls on one stream run one after the other.
void reuse_workspace(const Context& ctx) {
  if (ctx.workspace != nullptr) ctx.workspace->reset();
}

}  // namespace

// Keys that a chunk's first group had before this step: appending may write over them.
void Llama::keep_tails(const Batch& batch, const PagedKv& kv, const Context& ctx) {
  const int64_t begin = batch.num_decodes, end = batch.batch();
  PagedKv tails = kv;
  tails.page_table = batch.page_table.slice(0, begin, end).slice(1, 0, 1);  // less than a page
  tails.seq_lens = batch.tail_lens;
  tails.tails = batch.tails.slice(0, begin, end);
  // The values it reads beside them are of no use, and lie where no table leads.
  kv_gather({.kv = tails,
             .starts = batch.exact_starts,
             .k = as_tokens(scratch_k_),
             .v = as_tokens(scratch_v_)},
            ctx);
}

void Llama::append(const Batch& batch, const Heads& heads, const PagedKv& kv, const Context& ctx) {
  const bool keeps_exact = batch.exact_slots.rank == 1 && batch.num_decodes < batch.batch();
  if (keeps_exact) keep_tails(batch, kv, ctx);
  kv_append({.k = heads.k,
             .v = heads.v,
             .slots = batch.slots,
             .k_pages = kv.k_pages,
             .v_pages = kv.v_pages,
             .k_scales = kv.k_scales,
             .v_scales = kv.v_scales,
             .k_tail = kv.k_tail,
             .tail_slots = batch.tail_slots},
            ctx);
  if (!keeps_exact) return;
  kv_append({.k = heads.k,
             .v = heads.v,
             .slots = batch.exact_slots,
             .k_pages = scratch_k_,
             .v_pages = scratch_v_},
            ctx);
}

void Llama::attend_gathered(const Batch& batch, const ChunkPass& pass, int64_t window,
                            const Heads& heads, const PagedKv& kv, const Context& ctx) {
  const int64_t begin = pass.first_sequence, end = begin + pass.num_sequences;
  PagedKv sequences = kv;
  sequences.page_table = batch.page_table.slice(0, begin, end);
  sequences.seq_lens = batch.seq_lens.slice(0, begin, end);
  if (batch.tails.rank == 1) sequences.tails = batch.tails.slice(0, begin, end);
  kv_gather({.kv = sequences,
             .starts = pass.gather_starts,
             .k = as_tokens(scratch_k_),
             .v = as_tokens(scratch_v_)},
            ctx);
  const int64_t first = pass.first_token, last = first + pass.num_tokens;
  reuse_workspace(ctx);
  attention_prefill({.q = heads.q.slice(0, first, last),
                     .k = scratch_k_,
                     .v = scratch_v_,
                     .out = heads.out.slice(0, first, last),
                     .mask = {.left = window > 0 ? window - 1 : -1, .right = 0},
                     .q_starts = pass.q_starts,
                     .kv_lens = pass.kv_lens,
                     .k_page_table = pass.k_table,
                     .v_page_table = pass.v_table},
                    ctx);
}

void Llama::attend_chunks(const Batch& batch, int64_t window, const Heads& heads, const PagedKv& kv,
                          const Context& ctx) {
  const int64_t num_decodes = batch.num_decodes, num_tokens = batch.num_tokens();
  if (num_decodes == batch.batch()) return;
  if (limits_.kv_type != KvFormat::plain) {
    for (const ChunkPass& pass : batch.passes) {
      attend_gathered(batch, pass, window, heads, kv, ctx);
    }
    return;
  }
  reuse_workspace(ctx);
  attention_prefill({.q = heads.q.slice(0, num_decodes, num_tokens),
                     .k = kv.k_pages,
                     .v = kv.v_pages,
                     .out = heads.out.slice(0, num_decodes, num_tokens),
                     .mask = {.left = window > 0 ? window - 1 : -1, .right = 0},
                     .q_starts = batch.chunk_starts,
                     .kv_lens = batch.seq_lens.slice(0, num_decodes, batch.batch()),
                     .k_page_table = batch.page_table.slice(0, num_decodes, batch.batch())},
                    ctx);
}

// Generated tokens go to the decode kernel, chunks of prompts to the prefill kernel, which may
// round differently. The batch says which is which, so the line lies where the prompt ends,
// whatever else a step computes.
void Llama::attend(const Batch& batch, int64_t layer, const TensorView& qkv, KvMemory& kv,
                   const Context& ctx) {
  const int64_t head_dim = config_.head_dim;
  const int64_t num_heads = config_.num_heads / communicator_.size();
  const int64_t q_width = num_heads * head_dim, kv_width = num_kv_heads() * head_dim;
  const Heads heads{
      .q = as_heads(qkv, 0, num_heads, head_dim),
      .k = as_heads(qkv, q_width, num_kv_heads(), head_dim),
      .v = as_heads(qkv, q_width + kv_width, num_kv_heads(), head_dim),
      .out = as_heads(attended_.view().slice(0, 0, batch.num_tokens()), 0, num_heads, head_dim)};
  const PagedKv cache = kv.layer(layer);
  const int64_t window = config_.window_of(layer);
  rope({.q = heads.q, .k = heads.k, .positions = batch.positions, .table = rope_table_.view()},
       ctx);
  append(batch, heads, cache, ctx);
  const int64_t num_decodes = batch.num_decodes;
  if (num_decodes > 0) {
    PagedKv sequences = cache;
    sequences.page_table = batch.page_table.slice(0, 0, num_decodes);
    sequences.seq_lens = batch.seq_lens.slice(0, 0, num_decodes);
    if (batch.tails.rank == 1) sequences.tails = batch.tails.slice(0, 0, num_decodes);
    reuse_workspace(ctx);
    attention_decode({.q = heads.q.slice(0, 0, num_decodes),
                      .kv = sequences,
                      .out = heads.out.slice(0, 0, num_decodes),
                      .window = window,
                      .longest = batch.longest_decode,
                      .shares_pages = batch.shares_pages},
                     ctx);
  }
  attend_chunks(batch, window, heads, cache, ctx);
}

}  // namespace tessera::model
