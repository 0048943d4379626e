// What the rotary embedding kernel reads.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/divisor.h"

namespace tessera::kernels {

// Plain data, copied by value into constant memory. Strides count elements; the innermost
// dimension is contiguous, so it has none.
struct RopeHeads {
  void* data;  // [tokens, num_heads, head_dim]; null where num_heads is 0
  int64_t token_stride;
  int64_t head_stride;
  uint32_t num_heads;
};

struct RopeParams {
  RopeHeads q;
  RopeHeads k;
  const void* positions;  // [tokens]; int64_t or int32_t, see has_long_positions
  const float* table;     // [num_positions, rotary_dim]: cosines, then sines

  int64_t num_positions;
  uint32_t rotary_dim;
  uint32_t num_items;     // tokens * head groups * vectors
  uint32_t num_q_groups;  // head groups of q; those of k follow
  Divisor groups_per_token;
  Divisor vecs_per_half;  // rotary_dim / 2 / kVec
  bool has_long_positions;
};
static_assert(std::is_trivially_copyable_v<RopeParams>);

}  // namespace tessera::kernels
