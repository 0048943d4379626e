// What the Hopper decode kernel reads.
// SPDX-License-Identifier: MIT
#pragma once

#include <cuda.h>
#include <vector_types.h>

#include <cstdint>
#include <type_traits>

#include "kernels/attention/decode_sm90/plan.h"
#include "kernels/attention/params.h"

namespace tessera::kernels {

// Where scales lie, in bytes: those of the rows of a page and head side by side, or those of a
// head's columns, once for every 32 rows.
struct ScaleParams {
  const char* data;
  uint32_t head;
  uint32_t page;
  uint32_t group;  // of columns: from 32 rows to the next
};

// Where the newest keys of every sequence lie in 16 bits, in elements: [tail, 32, head, element].
struct TailParams {
  const void* data;
  const int32_t* tails;  // which one is a sequence's
  int64_t tail;
  int64_t row;
  int64_t head;
};

inline constexpr int kInverseBits = 20;
inline constexpr int kMostGroup = 255;

struct Sm90DecodeParams {
  // Boxes of 16 rows of one head, or of 32 where these lie in one page and one panel: [page, head,
  // panel, row, byte].
  CUtensorMap k;
  CUtensorMap v;
  const void* q;
  void* out;
  float* lse;            // null: not asked for
  RowStrides q_strides;  // row: a token
  RowStrides out_strides;
  RowStrides lse_strides;
  const int32_t* seq_lens;
  const int32_t* page_table;  // null: sequence s has page s to itself
  int64_t table_stride;
  const int32_t* tree;  // null: causal
  ScaleParams k_scales;
  ScaleParams v_scales;
  TailParams k_tail;
  const float* k_head_scales;  // fp8; null: 1
  const float* v_head_scales;
  int k_head_scale_step;  // 0: one for all heads
  int v_head_scale_step;
  int log2_boxes_per_page;
  int box_mask;  // of a box within its page; all bits where there are no pages
  bool has_long_boxes;
  uint64_t cache_policy;  // what L2 should do with what is read
  int num_kv_heads;
  int group;               // heads that share keys
  int q_len;               // tokens
  uint32_t inverse_group;  // 2^kInverseBits / group, rounded up
  int rows;                // queries that share keys: group * q_len
  int window;              // kUnbounded: none
  ScoreParams scores;
  int num_row_groups;
  int num_sequences;
  // Blocks that share the keys of one sequence and head, and where they leave what they found.
  int log2_parts;
  int longest;  // no sequence has more keys
  DecodeEarly early;
  float4* partial_o;
  float4* partial_sums;  // reference, sum, offset
  uint32_t* tickets;  // one for every sequence, group of rows and head; 0 before and after a call
};
static_assert(std::is_trivially_copyable_v<Sm90DecodeParams>);

}  // namespace tessera::kernels
