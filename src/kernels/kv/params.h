// What the KV cache kernels read.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/divisor.h"
#include "tessera/ops/kv_cache.h"

namespace tessera::kernels {

// Plain data, copied by value into constant memory. Strides count elements; the innermost
// dimension is contiguous, so it has none.

// Keys, or values, in pages.
struct KvPool {
  void* data;           // [num_pages, page_size, num_kv_heads, head_dim]
  void* scales;         // as KvFormat says; null where there are none
  int64_t page_stride;  // of i4 even, like all its strides
  int64_t row_stride;
  int64_t head_stride;
  int64_t scale_page_stride = 0;  // of fp8 0
  int64_t scale_row_stride = 0;   // from group to group of 32 rows where columns share a scale
  int64_t scale_head_stride = 0;
  int64_t scale_column_stride = 0;  // where columns share a scale
  DType dtype;
  KvFormat format;
  bool has_column_vectors = false;  // scale and low of 8 columns are whole vectors

  constexpr int64_t element(int64_t page, int64_t row, int64_t head) const {
    return page * page_stride + row * row_stride + head * head_stride;
  }
  constexpr int64_t scale_element(int64_t page, int64_t row_or_group, int64_t head) const {
    return page * scale_page_stride + row_or_group * scale_row_stride + head * scale_head_stride;
  }
};

// q, k or v of a call's tokens.
struct KvHeads {
  void* data;  // [tokens, num_heads, head_dim]
  int64_t token_stride;
  int64_t head_stride;
  int64_t num_heads;  // 0 where the kernel has nothing to do with them

  constexpr int64_t element(int64_t token, int64_t head) const {
    return token * token_stride + head * head_stride;
  }
};

struct KvAppendParams {
  KvHeads q;  // rotated; none without a table
  KvHeads k;  // rotated and stored
  KvHeads v;
  const void* slots;  // [tokens]; int64_t or int32_t, see has_long_slots
  KvPool k_pages;
  KvPool v_pages;
  KvPool k_tail;           // [num_tails, 32, num_kv_heads, head_dim]; without columns empty
  const void* tail_slots;  // [tokens]; int64_t or int32_t, see has_long_tail_slots
  const void* positions;   // [tokens]; int64_t or int32_t, see has_long_positions
  const float* table;      // [num_positions, rotary_dim]: cosines, then sines; null: no rotation

  int64_t num_tokens;
  int64_t num_slots;       // num_pages * page_size, at most kMaxDividend
  int64_t num_tail_slots;  // num_tails * 32
  int64_t num_positions;
  int64_t num_rows;  // of q, k and v together, of one token
  int64_t num_kv_heads;
  Divisor page_size;
  int head_dim;
  int rotary_dim;  // 0 without a table
  int log_lanes;   // 2^log_lanes lanes share a row
  bool is_interleaved;
  bool has_long_slots;
  bool has_long_tail_slots;
  bool has_long_positions;
};
static_assert(std::is_trivially_copyable_v<KvAppendParams>);

struct KvGatherParams {
  KvPool k_pages;
  KvPool v_pages;
  KvPool k_tail;  // [num_tails, 32, num_kv_heads, head_dim]; without columns empty
  KvHeads k;      // written
  KvHeads v;
  const int32_t* page_table;  // [batch, max_pages]; null: sequence s has page s
  const int32_t* seq_lens;    // [batch]
  const int32_t* tails;       // [batch]; null without columns
  const int32_t* starts;      // [batch]: the row of k and v of a sequence's first token

  int64_t table_stride;
  int64_t batch;
  int64_t num_pages;
  int64_t num_tails;
  int64_t num_rows;  // of k and v
  Divisor page_size;
  Divisor rows_per_token;  // 2 * num_kv_heads
  int most_tokens;         // of a sequence: those that have pages, and rows to go to
  int log_item_tokens;     // an item is 2^log_item_tokens tokens
  int head_dim;
  int log_lanes;  // 2^log_lanes lanes share a row
};
static_assert(std::is_trivially_copyable_v<KvGatherParams>);

inline constexpr int kMaxPageAxes = 6;  // five of the view and the bytes of an element
inline constexpr int kMaxCopiedPools = 4;

// How one page of a pool is walked. Strides count units.
struct PageWalk {
  struct Axis {
    Divisor size;
    int64_t stride;
  };

  char* data;                    // the first unit of page 0
  int64_t page_stride;           // bytes
  uint32_t num_units;            // of a page
  int unit_bytes;                // 1, 2, 4, 8 or 16
  uint32_t num_blocks;           // of threads, a page
  int rank = 0;                  // 0: a page is one unit
  Axis axes[kMaxPageAxes] = {};  // innermost first

  // Where unit `index` of a page is, in units from the page's first.
  constexpr int64_t offset_of(uint32_t index) const {
    int64_t offset = 0;
    for (int d = 0; d < rank - 1; ++d) {
      const QuotientRemainder at = divide_with_remainder(index, axes[d].size);
      offset += at.remainder * axes[d].stride;
      index = at.quotient;
    }
    // What is left lies along the last axis: a page that is one run divides nothing.
    return rank == 0 ? 0 : offset + index * axes[rank - 1].stride;
  }
};

struct KvCopyPagesParams {
  const int32_t* sources;  // [count]
  const int32_t* targets;  // [count]
  int64_t count;
  int64_t num_pages;
  int num_pools;
  PageWalk pools[kMaxCopiedPools];
};
static_assert(std::is_trivially_copyable_v<KvCopyPagesParams>);

}  // namespace tessera::kernels
