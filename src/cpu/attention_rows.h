// The vector part of attention: some rows of queries that share a KV head, over all keys they see.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <limits>

#include "cpu/kv_rows.h"
#include "cpu/simd_dispatch.h"
#include "tessera/core/dtype.h"

namespace tessera::cpu {

// Keys are processed in blocks of this many, aligned to position 0 of the sequence, so where a
// block begins depends neither on the page size nor on the chunk.
inline constexpr int64_t kKeyBlock = 64;
// The sum of weights is kept as this many partial sums whatever the vector width, so that all
// widths give the same bits. Rows of floats are padded to it.
inline constexpr int64_t kSumLanes = 16;
// At most this many rows share one pass over the keys: enough that unpacking a block of keys costs
// little compared to its products, few enough that their state stays in the cache.
inline constexpr int64_t kRowsPerItem = 96;

// What all items of a call share. Strides count elements.
struct AttentionParams {
  DType dtype = DType::f32;  // of q and out
  const void* q = nullptr;   // heads of head_dim elements
  void* out = nullptr;       // like q; may be q
  KvPages k;
  KvPages v;     // the number of pages may differ from that of k
  KvPages tail;  // [num_tails, 32, ...]: the newest keys, where k has scales by column
  int64_t q_token_stride = 0;
  int64_t q_head_stride = 0;
  int64_t out_token_stride = 0;
  int64_t out_head_stride = 0;
  int64_t page_size = 0;
  int64_t num_kv_heads = 0;
  int64_t heads_per_kv = 0;  // query heads that share a KV head
  int64_t head_dim = 0;
  int64_t window = 0;  // 0: unbounded
  // From q . k to a score in base 2: factor * (q . k), or with a cap
  // cap_log2 * tanh(factor * (q . k) / (2 log2(e))).
  float factor = 0.0f;
  float cap_log2 = 0.0f;  // 0: no cap
};

// Row r of a sequence and KV head is query token r / heads_per_kv and head r % heads_per_kv of
// those that share the KV head. An item is the rows [first_row, first_row + num_rows).
struct AttentionItem {
  const int32_t* k_table = nullptr;  // of the sequence: token t is in page k_table[t / page_size]
  const int32_t* v_table = nullptr;
  int32_t tail = 0;  // keys from tail_begin on are in this tail
  int64_t tail_begin = std::numeric_limits<int64_t>::max();
  int64_t q_begin = 0;         // the element of q that begins the sequence's first query
  int64_t out_begin = 0;       // the same in out
  int64_t first_position = 0;  // of that query; negative positions see no key
  int64_t kv_head = 0;
  int64_t first_row = 0;
  int64_t num_rows = 0;
};

// Floats of scratch that an item of at most kRowsPerItem rows needs.
int64_t attention_scratch_floats(int64_t head_dim);

// Computes one item. The result for a row depends only on its query and on the keys and values it
// sees: not on the other rows, the page size, or unseen memory.
SimdBuilds<void(const AttentionParams&, const AttentionItem&, float*)> attend_builds();

// x[i] = 2^x[i] for x[i] <= 0, as the weights are computed: within 1.5 ulp for x >= -126, 0 below,
// 1 for 0, NaN for NaN.
SimdBuilds<void(float*, int64_t)> exp2_builds();

}  // namespace tessera::cpu
