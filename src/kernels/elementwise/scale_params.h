// What the scale kernel reads.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <type_traits>

namespace tessera::kernels {

// Plain data, copied by value into constant memory.
struct ScaleParams {
  const void* x;         // [count]
  const void* residual;  // [count]; null: none
  void* out;             // [count]

  int64_t count;
  float scale;
  float softcap;  // 0: none
};
static_assert(std::is_trivially_copyable_v<ScaleParams>);

}  // namespace tessera::kernels
