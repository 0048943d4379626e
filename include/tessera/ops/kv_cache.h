// A paged KV cache: how keys and values lie in pages, and the operations on them other than
// attention: append new tokens, copy pages before they change, read pages back.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>

#include "tessera/core/context.h"
#include "tessera/core/tensor.h"
#include "tessera/ops/kv_format.h"
#include "tessera/ops/rope.h"

namespace tessera {

// What an element is worth follows from the type of the pages and the shape of their scales:
//
//   format        pages            scales (KvScales)   element
//   plain         f32, f16, bf16   none                itself
//   e4m3, e5m2    the same         head                code * scale
//   int8          i8               row                 code * scale
//   uint8         u8               row                 code * scale + low
//   int4_token    i4               row                 code * scale + low
//   int4          i4, keys alone   column              code * scale + low
// Codes of u8 and i4 are unsigned: 0 to 255 and 0 to 15. Product and sum are float, each rounded.
// Elements of a row lie side by side, as do a scale and its low; rows may be anywhere.
inline KvFormat kv_format(const TensorView& pages, const TensorView& scales) {
  switch (pages.dtype) {
    case DType::e4m3: return KvFormat::e4m3;
    case DType::e5m2: return KvFormat::e5m2;
    case DType::i8: return KvFormat::int8;
    case DType::u8: return KvFormat::uint8;
    case DType::i4: return scales.rank == 5 ? KvFormat::int4 : KvFormat::int4_token;
    default: return KvFormat::plain;
  }
}

// One layer's keys and values, and where each sequence's lie. Token t of sequence s is row
// t % page_size of page page_table[s, t / page_size]. Entries beyond a sequence are never read.
// Without a page table sequence s has page s to itself.
struct PagedKv {
  TensorView k_pages;        // [num_pages, page_size, num_kv_heads, head_dim]; rows may be apart
  TensorView v_pages;        // like k_pages, in a type of its own
  TensorView page_table;     // i32 [batch, max_pages]; rows may be apart
  TensorView seq_lens;       // i32 [batch], contiguous: tokens to attend to, the newest included
  TensorView k_scales = {};  // as kv_format() says
  TensorView v_scales = {};
  // Scales by column exist only for full groups of 32 tokens. Keys of the newest token's group are
  // read from here instead: token t of sequence s is row t % 32 of tail tails[s].
  TensorView k_tail = {};  // [num_tails, 32, num_kv_heads, head_dim]; f32, f16 or bf16
  TensorView tails = {};   // i32 [batch], contiguous
};

// Rotates q, and the new keys, before they are stored: rope() in the same pass.
struct KvRope {
  TensorView q;          // [tokens, num_heads, head_dim], dtype of k; updated
  TensorView positions;  // [tokens]; i32 or i64, contiguous
  TensorView table;      // make_rope_table
  RopeStyle style = RopeStyle::half_split;
};

//   k_pages[slots[i] / page_size, slots[i] % page_size] = k[i]; v likewise, in their formats
// A negative slot is skipped. Two tokens must not have the same slot. A slot beyond the pages is
// refused on the CPU; a GPU skips it.
//
// Scales by row: i8 has scale = absmax / 127, codes from -127 to 127; u8 and i4 have low = min,
// scale = (max - low) / 255 or 15. Scale and low are rounded to f16 (a scale that would be 0
// becomes 1, one beyond 65504 becomes 65504); then a code is x / scale, or (x - low) / scale,
// rounded to nearest even and clamped. FP8 does not write its scales: a code is x / scale, rounded
// and clamped. Scales by column: a token goes to row tail_slots[i] % 32 of tail tail_slots[i] / 32;
// if two have the same slot, the later one stays. A token whose row is the last of 32 in its page
// completes a group, which is then written to its page: from k, as far back as the tokens of the
// call have consecutive slots, and from the tail before that.
//
// A value that is not finite is never stored as an ordinary number. FP8 stores NaN for it. In
// formats with scales by row or column, scale and low become NaN and all codes 0, so everything
// read back is NaN.
struct KvAppendArgs {
  TensorView k;        // [tokens, num_kv_heads, head_dim]; f32, f16, bf16; heads may be apart
  TensorView v;        // like k
  TensorView slots;    // i32 or i64 [tokens], contiguous: page * page_size + row
  TensorView k_pages;  // as in PagedKv, and written; plain ones in the dtype of k
  TensorView v_pages;
  TensorView k_scales = {};  // written, except for FP8
  TensorView v_scales = {};
  TensorView k_tail = {};      // written; dtype of k
  TensorView tail_slots = {};  // like slots, where keys have a tail
  std::optional<KvRope> rope = {};
};

//   pages[targets[i]] = pages[sources[i]]   of k and v, with their scales; no target is also a
//   source
struct KvCopyPagesArgs {
  TensorView k_pages;  // [num_pages, page_size, num_kv_heads, head_dim]; any type
  TensorView v_pages;
  TensorView sources;        // i32 [count], contiguous
  TensorView targets;        // i32 [count], contiguous
  TensorView k_scales = {};  // by row or column; FP8 scales are not copied
  TensorView v_scales = {};
};

//   k[starts[s] + t], v[starts[s] + t] = the row of token t of sequence s, rounded to their type
// for t below seq_lens[s]. Other rows of k and v are not touched.
struct KvGatherArgs {
  PagedKv kv;
  TensorView starts;  // i32 [batch], contiguous
  TensorView k;       // [tokens, num_kv_heads, head_dim]; f32, f16 or bf16; written
  TensorView v;       // like k
};

void kv_append(const KvAppendArgs& args, const Context& ctx = {});
void kv_copy_pages(const KvCopyPagesArgs& args, const Context& ctx = {});
void kv_gather(const KvGatherArgs& args, const Context& ctx = {});
bool supports(const KvAppendArgs& args, const Context& ctx = {});
bool supports(const KvCopyPagesArgs& args, const Context& ctx = {});
bool supports(const KvGatherArgs& args, const Context& ctx = {});

}  // namespace tessera
