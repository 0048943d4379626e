// What the portable decode kernel reads, made from the public arguments, and its launcher.
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>

#include "kernels/attention/decode/portable/cut.h"
#include "kernels/attention/params.h"
#include "tessera/core/context.h"

namespace tessera::kernels::decode_portable {

// Keys, values, or the tail of keys, in pages as in PagedKv.
struct KvSource {
  const uint8_t* data;  // null: none
  int64_t page_bytes;
  int64_t row_bytes;
  int64_t head_bytes;
  // As KvScales says; null: none. Strides count elements; with scales by column scale_row is the
  // stride of a group of 32 rows.
  const void* scales;
  int64_t scale_page;
  int64_t scale_row;
  int64_t scale_head;
  int64_t scale_column;
  KvFormat format;
  KvScales scale_kind;
  DType dtype;
  bool has_vectors;  // 8 elements of a row can be loaded at once
};

struct DecodeParams {
  const void* q;  // [batch, q_len, num_heads, head_dim]
  void* out;
  float* lse;            // [batch, num_heads, q_len]; null: not wanted
  RowStrides q_strides;  // in elements, like all strides but those of KvSource
  RowStrides out_strides;
  RowStrides lse_strides;
  KvSource k;
  KvSource v;
  KvSource k_tail;
  const int32_t* tails;       // [batch]; null: keys have no tail
  const int32_t* page_table;  // [batch, max_pages]; null: sequence s has page s
  int64_t table_stride;
  const int32_t* seq_lens;    // [batch]
  const int32_t* tree;        // [batch, q_len]; null: none
  const int32_t* blocks;      // [batch, max_blocks]
  const int32_t* num_blocks;  // [batch]
  int64_t block_stride;
  const int32_t* keys;      // [batch, q_len, max_keys]
  const int32_t* num_keys;  // [batch, q_len]
  int64_t key_batch;
  int64_t key_row;
  bool has_blocks;  // a list without entries may have no memory, so its pointer does not tell
  bool has_keys;
  int max_blocks;
  int max_keys;
  int page_size;
  int capacity;  // upper bound of a sequence's tokens
  int num_heads;
  int num_kv_heads;
  int head_dim;
  int window;  // kUnbounded: all
  DecodeRowCut rows;
  ScoreParams scores;
  // If a tile has several pieces: the partial states of their blocks, and a ticket per tile. A tile
  // is a sequence, a KV head and a tile of rows.
  float* partials;    // [tiles, num_pieces, rows_per_tile, head_dim], unnormalised
  float* states;      // [tiles, num_pieces, rows_per_tile, 2]: maximum and sum
  uint32_t* tickets;  // [tiles], zeros
};
static_assert(std::is_trivially_copyable_v<DecodeParams>);

inline int64_t q_len_of(const DecodeAttentionArgs& args) {
  return args.q.rank == 4 ? args.q.size(1) : 1;
}
inline int64_t group_of(const DecodeAttentionArgs& args) {
  return args.q.size(-2) / args.kv.k_pages.size(2);
}
inline int64_t capacity_of(const DecodeAttentionArgs& args) {
  const int64_t max_pages = args.kv.page_table.rank == 2 ? args.kv.page_table.size(1) : 1;
  return max_pages * args.kv.k_pages.size(1);
}

// Whether 8 elements of every row are aligned to their size, up to 16 bytes. The stride of an axis
// of one does not matter.
inline bool has_vectors(const TensorView& pages) {
  const int64_t bits = bit_width(pages.dtype);
  const int64_t alignment = std::min<int64_t>(bits, 16);
  if (pages.size(3) % 8 != 0 || reinterpret_cast<uintptr_t>(pages.data) % alignment != 0) {
    return false;
  }
  for (int axis = 0; axis < 3; ++axis) {
    if (pages.size(axis) > 1 && pages.stride(axis) * bits / 8 % alignment != 0) return false;
  }
  return true;
}

inline KvSource kv_source(const TensorView& pages, const TensorView& scales) {
  const int64_t bits = bit_width(pages.dtype);  // i4 rows begin on whole bytes
  KvSource source{};
  source.data = pages.as<uint8_t>();
  source.page_bytes = pages.stride(0) * bits / 8;
  source.row_bytes = pages.stride(1) * bits / 8;
  source.head_bytes = pages.stride(2) * bits / 8;
  source.format = kv_format(pages, scales);
  source.scale_kind = traits(source.format).scales;
  source.dtype = pages.dtype;
  source.has_vectors = has_vectors(pages);
  source.scales = scales.data;
  if (scales.data == nullptr) return source;
  if (scales.rank == 1) {
    source.scale_head = scales.size(0) == 1 ? 0 : 1;
    return source;
  }
  source.scale_page = scales.stride(0);
  source.scale_row = scales.stride(1);
  source.scale_head = scales.stride(2);
  source.scale_column = scales.rank == 5 ? scales.stride(3) : 0;
  return source;
}

// Strides of q and out, and of lse, whose last axis is the query.
inline RowStrides decode_strides(const TensorView& t) {
  return {t.stride(0), t.rank == 4 ? t.stride(1) : 0, t.stride(-2)};
}
inline RowStrides decode_lse_strides(const TensorView& t) {
  return {t.stride(0), t.rank == 3 ? t.stride(2) : 0, t.stride(1)};
}

inline DecodeRowCut row_cut(const DecodeAttentionArgs& args, int rows_per_tile) {
  return {static_cast<int>(q_len_of(args)), static_cast<int>(group_of(args)), rows_per_tile,
          args.keys.rank == 3};
}

// Upper bound of the keys that a tile visits; of listed blocks, whole ones.
inline int most_keys(const DecodeParams& p) {
  if (p.has_keys) return p.max_keys;
  return p.has_blocks ? (p.capacity + p.page_size - 1) / p.page_size * p.page_size : p.capacity;
}

inline DecodeParams decode_params(const DecodeAttentionArgs& args, int rows_per_tile) {
  const TensorView &table = args.kv.page_table, &blocks = args.blocks, &keys = args.keys;
  DecodeParams p{};
  p.q = args.q.data;
  p.out = args.out.data;
  p.q_strides = decode_strides(args.q);
  p.out_strides = decode_strides(args.out);
  p.lse = args.lse.as<float>();
  if (args.lse.data != nullptr) p.lse_strides = decode_lse_strides(args.lse);
  p.k = kv_source(args.kv.k_pages, args.kv.k_scales);
  p.v = kv_source(args.kv.v_pages, args.kv.v_scales);
  if (p.k.scale_kind == KvScales::column) {
    p.k_tail = kv_source(args.kv.k_tail, {});
    p.tails = args.kv.tails.as<int32_t>();
  }
  if (table.rank == 2) {
    p.page_table = table.as<int32_t>();
    p.table_stride = table.stride(0);
  }
  p.seq_lens = args.kv.seq_lens.as<int32_t>();
  p.tree = args.tree.as<int32_t>();
  if (blocks.rank == 2) {
    p.has_blocks = true;
    p.blocks = blocks.as<int32_t>();
    p.num_blocks = args.num_blocks.as<int32_t>();
    p.block_stride = blocks.stride(0);
    p.max_blocks = static_cast<int>(blocks.size(1));
  }
  if (keys.rank == 3) {
    p.has_keys = true;
    p.keys = keys.as<int32_t>();
    p.num_keys = args.num_keys.as<int32_t>();
    p.key_batch = keys.stride(0);
    p.key_row = keys.stride(1);
    p.max_keys = static_cast<int>(keys.size(2));
  }
  p.page_size = static_cast<int>(args.kv.k_pages.size(1));
  p.capacity = static_cast<int>(capacity_of(args));
  if (args.longest > 0 && args.longest < p.capacity) p.capacity = static_cast<int>(args.longest);
  p.num_heads = static_cast<int>(args.q.size(-2));
  p.num_kv_heads = static_cast<int>(args.kv.k_pages.size(2));
  p.head_dim = static_cast<int>(args.q.size(-1));
  p.window = args.window == 0 ? kUnbounded : bounded(args.window);
  p.rows = row_cut(args, rows_per_tile);
  p.scores.scale =
      args.scale != 0.0f ? args.scale : 1.0f / std::sqrt(static_cast<float>(p.head_dim));
  p.scores.softcap = args.softcap;
  p.scores.sinks = args.sinks.as<float>();
  p.scores.alibi_slopes = args.alibi_slopes.as<float>();
  return p;
}

// T is the type of q: float, F16 or Bf16. kRows: rows of a tile, 4 or 8.
template <class T, int kRows>
void launch_decode(const DecodeAttentionArgs& args, const Context& ctx);

}  // namespace tessera::kernels::decode_portable
