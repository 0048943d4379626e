// What the sums of codes read, and the functions compiled per instruction set.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "cpu/simd_dispatch.h"

namespace tessera::cpu {

// Some of k of all rows of a, and of one row of b.
struct CodeRows {
  const int16_t* a;  // [num_rows, count]
  const int8_t* b;   // [count]
  int32_t* sums;     // [num_rows]; written
  int64_t num_rows, count;
  int64_t a_stride;  // from one row to the next
};

SimdBuilds<void(const CodeRows&)> sum_code_rows_builds();

}  // namespace tessera::cpu
