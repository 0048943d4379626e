// Attention over a paged KV cache: chunks of prompts, and one new token a sequence.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "tessera/core/context.h"
#include "tessera/core/tensor.h"

namespace tessera {

// One layer's keys and values, and where each sequence's lie. Token t of sequence s is row
// t % page_size of page page_table[s, t / page_size]. Entries beyond a sequence are never read.
struct PagedKv {
  TensorView k_pages;     // [num_pages, page_size, num_kv_heads, head_dim]; contiguous
  TensorView v_pages;     // like k_pages
  TensorView page_table;  // i32 [batch, max_pages]; rows may be apart
  TensorView seq_lens;    // i32 [batch], contiguous: tokens to attend to, the newest included
};

// How scores become weights. The query at position p sees keys j <= p, and with a window only
// j > p - window.
struct AttentionScores {
  float scale = 0.0f;    // 0: 1 / sqrt(head_dim)
  int64_t window = 0;    // 0: unbounded
  float softcap = 0.0f;  // 0: none; else s = softcap * tanh(s / softcap), before the mask
};

//   out[i, h] = softmax(scale * q[i, h] . K^T) . V       over the keys that token i sees
// Query head h reads KV head h / (num_heads / num_kv_heads). The query tokens of sequence s are
// rows query_starts[s] to query_starts[s + 1] of q, and are its last: with n of them the first is
// at position seq_lens[s] - n. A seq_len of 0 marks an idle slot: its queries see no key and give
// zeros. The result for a token does not depend on the other sequences, nor on how many tokens of
// its own are in the call: on one device a chunk gives the bits that attention_decode gives.
// Accuracy: scores, weights and sums are float, 2^x within 1.5 ulp; out is rounded once. The CPU
// takes any head_dim and page_size from 1 on, and refuses lengths, starts and pages out of range
// before it writes; pages a query does not see are neither read nor checked.
struct PrefillAttentionArgs {
  TensorView q;             // [tokens, num_heads, head_dim]; f32, f16, bf16; heads may be apart
  PagedKv kv;               // pages in the dtype of q
  TensorView query_starts;  // i32 [batch + 1], contiguous, ascending from 0 to tokens
  TensorView out;           // [tokens, num_heads, head_dim], dtype of q; may be q
  AttentionScores scores = {};
};

// The same with exactly one query token a sequence.
struct DecodeAttentionArgs {
  TensorView q;    // [batch, num_heads, head_dim]; f32, f16, bf16; heads may be apart
  PagedKv kv;      // pages in the dtype of q; a seq_len of 0 marks an idle slot: zeros
  TensorView out;  // [batch, num_heads, head_dim], dtype of q; may be q
  AttentionScores scores = {};
};

void attention_prefill(const PrefillAttentionArgs& args, const Context& ctx = {});
void attention_decode(const DecodeAttentionArgs& args, const Context& ctx = {});
bool supports(const PrefillAttentionArgs& args, const Context& ctx = {});
bool supports(const DecodeAttentionArgs& args, const Context& ctx = {});

}  // namespace tessera
