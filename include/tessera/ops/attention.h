// Attention: over whole prompts and chunks of them, over the newest tokens of sequences, and merges
// of results over parts of the keys.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "tessera/core/context.h"
#include "tessera/core/tensor.h"
#include "tessera/ops/kv_cache.h"

namespace tessera {

// Which keys a query sees. With q_len queries over kv_len keys, query i of a sequence has position
// p = i + kv_len - q_len, so the last query is at the last key. It sees key j if
//   p - left <= j <= p + right,   0 <= j < kv_len,
// and, if there are intervals, one of its own contains j.
struct AttentionMask {
  int64_t left = -1;   // negative: all keys before; n: a sliding window of n + 1 keys up to p
  int64_t right = -1;  // negative: all keys after; 0: causal
  // i32, 1 or 2 intervals [begin, end) of keys for every query, the same for all heads. Batched:
  // [batch, q_len, n, 2]; ragged: [tokens, n, 2]. The last two dimensions are contiguous.
  TensorView intervals = {};
};
inline constexpr AttentionMask kCausalMask{.right = 0};

// Drops weights after the softmax and scales the rest by 1 / (1 - rate). Which ones is a function
// of seed, sequence, head, position p and key alone: the same for any chunk, on any device. Of the
// words that Philox (src/core/philox.h) makes of the key `seed` and the counter {key / 4, p, head,
// sequence}, the one numbered key % 4 drops the weight if it is below rate * 2^32.
struct AttentionDropout {
  float rate = 0.0f;  // 0 to below 1
  uint64_t seed = 0;
};

//   out[i, h] = softmax(score(q[i, h] . k[j, g])) . v[j, g]     over the keys j that query i sees
//   score(x) = scale * x,  softcap * tanh(that / softcap),  that - alibi_slopes[h] * |p - j|
// in this order, each if requested; g = h / (num_heads / num_kv_heads). A sink is one more score of
// head h without a key. lse is the natural logarithm of the sum of the exponentials
// of the scores, the sink's among them. A query that sees no key gives zeros, and -inf or its sink.
//
// Layouts. Any strides, but the elements of a head are contiguous.
//   batched   q, out [batch, q_len, num_heads, d], k, v [batch, kv_len, num_kv_heads, d];
//             kv_lens, if given, says how many keys of each sequence count
//   ragged    q, out [tokens, num_heads, d], k, v [kv_tokens, num_kv_heads, d]; sequence s is the
//             rows q_starts[s] to q_starts[s + 1] of q and kv_starts[s] to kv_starts[s + 1] of k
//   paged     k, v [num_pages, page_size, num_kv_heads, d] with q either batched or ragged; token t
//             of sequence s is row t % page_size of page k_page_table[s, t / page_size]. Entries
//             beyond a sequence, and pages that no query of the call sees, are never read.
// The result for a token does not depend on the other sequences, nor on how many tokens of its own
// are in the call.
// Accuracy: scores and sums are float; weights are rounded to the type of v before they meet it on
// a GPU; out is rounded once.
// The CPU refuses lengths, starts and pages out of range before it writes; a GPU cannot look first.
struct AttentionArgs {
  TensorView q;         // f32, f16, bf16 or e4m3; d is d_k
  TensorView k;         // dtype of q
  TensorView v;         // dtype of q; its last size is d_v, which may differ from d_k
  TensorView out;       // dtype of q; with e4m3, bf16 or f16; d is d_v. May be q where d_k is d_v
  TensorView lse = {};  // optional, f32: [batch, num_heads, q_len], ragged [num_heads, tokens]
  float scale = 0.0f;   // positive, or 0: 1 / sqrt(d_k)
  AttentionMask mask = {};
  float softcap = 0.0f;          // 0: none
  TensorView sinks = {};         // optional, f32 [num_heads]
  TensorView alibi_slopes = {};  // optional, f32 [num_heads]
  TensorView q_starts = {};      // ragged: i32 [batch + 1], ascending from 0 to tokens
  TensorView kv_starts = {};     // ragged: i32 [batch + 1], ascending from 0 to kv_tokens
  TensorView kv_lens = {};       // paged, and optional where batched: i32 [batch]
  TensorView k_page_table = {};  // paged: i32 [batch, max_pages]; rows may be apart
  TensorView v_page_table = {};  // paged: the same for v, if its pages lie elsewhere
  TensorView q_scale = {};       // e4m3, optional: f32 [batch, num_kv_heads]; q times it is meant
  TensorView k_scale = {};
  TensorView v_scale = {};
  // e4m3: the tensor cores' sums of FP8 products keep about 14 bits. True: they sum over one block
  // of keys only, and blocks are added in float, which is slower and meant for long contexts; heads
  // of 64 and 128 without softcap, ALiBi and dropout. Other types are summed in float anyway.
  bool sums_in_float = false;
  AttentionDropout dropout = {};
};

// The newest tokens of every sequence, 1 to 16 of them, over a KV cache in any of its formats.
// Query i of q_len has position p = seq_lens[s] - q_len + i and sees key j if
//   j <= p, or for the newest q_len keys, if there is a tree, bit j - (seq_lens[s] - q_len) of
//   tree[s, i] is set;   j > p - window;
//   and block j / page_size is listed in blocks, or key j in keys, if these are given.
// Scores, sinks and lse are as in attention_prefill; a seq_len of 0 marks an idle slot: zeros. The
// result for a sequence does not depend on the others. On the CPU one plain token a sequence gives
// the bits that attention_prefill with a causal mask gives.
struct DecodeAttentionArgs {
  TensorView q;        // [batch, num_heads, head_dim] or [batch, q_len, num_heads, head_dim]; f32,
                       // f16, bf16; heads may be apart
  PagedKv kv;          // plain pages in the dtype of q
  TensorView out;      // shape and dtype of q; may be q
  float scale = 0.0f;  // positive, or 0: 1 / sqrt(head_dim)
  int64_t window = 0;  // keys a query sees, itself the last of them; 0: unbounded
  float softcap = 0.0f;          // 0: none; else s = softcap * tanh(s / softcap), before the mask
  TensorView lse = {};           // optional, f32: [batch, num_heads] or [batch, num_heads, q_len]
  TensorView sinks = {};         // optional, f32 [num_heads]
  TensorView alibi_slopes = {};  // optional, f32 [num_heads]
  TensorView tree = {};          // optional, i32 [batch, q_len], contiguous
  TensorView blocks = {};        // optional, i32 [batch, max_blocks]: each block once
  TensorView num_blocks = {};    // with blocks: i32 [batch], contiguous
  TensorView keys = {};          // optional, i32 [batch, q_len, max_keys]: each key once
  TensorView num_keys = {};      // with keys: i32 [batch, q_len], contiguous
  // Hints for speed on a GPU; no result depends on them.
  int64_t longest = 0;        // upper bound of seq_lens, if known; 0: what there is room for
  bool shares_pages = false;  // sequences have pages in common, which L2 should keep
};

// Attention over all keys, from attention over parts of them that have no key in common:
//   lse = log(sum over n of exp(part_lses[n])),   out = sum over n of exp(part_lses[n] - lse) *
//   parts[n]
// for every token and head, the parts in order. A part with an lse of -inf has seen no key, and its
// values are ignored; if that holds for all, out is zeros and lse -inf.
// Accuracy: sums are float, out is rounded once; the parts have been rounded once each before.
struct MergeAttentionArgs {
  TensorView parts;  // [num_parts, batch, num_heads, d], or [num_parts, batch, q_len, num_heads,
                     // d]; f32, f16, bf16; heads may be apart
  TensorView part_lses;  // f32 [num_parts, batch, num_heads], with q_len behind where parts have it
  TensorView out;        // a part's shape, dtype of parts
  TensorView lse = {};   // optional, f32, the shape of a part's
};

// attention_decode of sequences that begin with the same keys: the shared keys are read once for
// all sequences, then each one's own keys, and the results are merged. Every query sees every
// shared key. The shared keys come in pieces, which are folded in order before the own ones: more
// pieces keep more of a GPU busy, and pieces of about a thousand keys are worth their fold. A
// result depends on how they are cut and on the sequence's own keys, and on nothing else.
struct CascadeAttentionArgs {
  // Over the keys after the shared ones: lengths, lists and the tree count only those. No window
  // and no alibi_slopes. The tokens of q have one stride.
  DecodeAttentionArgs own;
  TensorView k_pages;     // shared: [num_pages, page_size, num_kv_heads, head_dim], dtype of q
  TensorView v_pages;     // like k_pages
  TensorView page_table;  // i32 [num_pieces, max_pages]; absent: piece n is page n
  TensorView piece_lens;  // i32 [num_pieces], contiguous
  // Scratch memory, contiguous: a part per piece and one for the own keys.
  TensorView parts;      // dtype of q, num_pieces + 1 times q
  TensorView part_lses;  // f32, one for each head and token of parts
};

void attention_prefill(const AttentionArgs& args, const Context& ctx = {});
void attention_decode(const DecodeAttentionArgs& args, const Context& ctx = {});
void attention_merge(const MergeAttentionArgs& args, const Context& ctx = {});
void attention_cascade(const CascadeAttentionArgs& args, const Context& ctx = {});
bool supports(const AttentionArgs& args, const Context& ctx = {});
bool supports(const DecodeAttentionArgs& args, const Context& ctx = {});
bool supports(const MergeAttentionArgs& args, const Context& ctx = {});
bool supports(const CascadeAttentionArgs& args, const Context& ctx = {});

}  // namespace tessera
