// What the activation kernel reads.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/divisor.h"

namespace tessera::kernels {

// Plain data, copied by value into constant memory. Strides count elements from row to row.
struct ActivationParams {
  const void* x;   // [rows, cols]
  const void* up;  // [rows, cols]; null: none
  void* out;       // [rows, cols]

  int64_t x_stride;
  int64_t up_stride;
  int64_t out_stride;
  uint32_t num_vecs;     // of all rows together; at least 1
  Divisor vecs_per_row;  // cols / kVec, without a rest
};
static_assert(std::is_trivially_copyable_v<ActivationParams>);

}  // namespace tessera::kernels
