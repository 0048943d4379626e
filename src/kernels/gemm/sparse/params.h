// What the kernel for 2:4 sparse weights reads.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <type_traits>

namespace tessera::kernels {

// Plain data, copied by value into constant memory. Strides count elements.
struct SparseGemmParams {
  const void* a;         // [m, k]
  const void* values;    // [n, k / 2]
  const uint32_t* meta;  // [ceil(n / 32), k / 32, 32]
  void* out;             // [m, n]
  int64_t a_stride;
  int64_t out_stride;
  int m;
  int n;
  int k;  // a multiple of 32
  int tiles_m;
  int tiles_n;
  bool has_vectors;  // out may be written 16 bytes at a time
};
static_assert(std::is_trivially_copyable_v<SparseGemmParams>);

}  // namespace tessera::kernels
