// What the embedding kernel reads.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/divisor.h"

namespace tessera::kernels {

// Plain data, copied by value into constant memory. Strides count elements from row to row.
struct EmbeddingParams {
  const void* table;  // [vocab, hidden]
  const void* ids;    // [tokens]; int64_t or int32_t, see has_long_ids
  void* out;          // [tokens, hidden]

  int64_t table_stride;
  int64_t out_stride;
  int64_t vocab;
  uint32_t num_items;     // of all tokens together
  Divisor items_per_row;  // hidden / kVec / kVecs, without a rest
  bool has_long_ids;
};
static_assert(std::is_trivially_copyable_v<EmbeddingParams>);

}  // namespace tessera::kernels
