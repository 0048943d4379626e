// What the row reductions and argmax read, and how their blocks cover a row.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <type_traits>

namespace tessera::kernels {

// Plain data, copied by value into constant memory. Strides count elements.
struct ReduceParams {
  const void* x;  // [num_rows, cols]
  float* out;     // [num_rows]

  int64_t x_stride;
  int64_t num_rows;
  int cols;
  bool is_vectorized;  // every access is a whole aligned vector: chooses the instance
};
static_assert(std::is_trivially_copyable_v<ReduceParams>);

struct ArgmaxParams {
  const void* x;  // [num_rows, cols]
  void* out;      // [num_rows]; i64 or i32, as has_wide_index says

  int64_t x_stride;
  int64_t num_rows;
  int cols;
  int num_parts;  // blocks that share a row: the cluster's size
  bool has_wide_index;
  bool is_vectorized;
};
static_assert(std::is_trivially_copyable_v<ArgmaxParams>);

inline constexpr int kReduceVecs = 4;  // loads in flight for each thread
inline constexpr int kReduceMaxThreads = 512;

// A long row waits for one block's share of the bandwidth, so with few rows a cluster splits it:
// into as many parts as keep the grid to two blocks an SM. Argmax is exact in any order; the split
// may depend on the number of rows.
inline constexpr int kArgmaxMaxParts = 8;
inline constexpr int kArgmaxSplitVecs = 2048;  // rows shorter than this are not worth a barrier
inline constexpr int64_t kArgmaxBlocks = 256;

constexpr int choose_argmax_parts(int num_vecs, int64_t num_rows) {
  if (num_vecs < kArgmaxSplitVecs) return 1;
  int num_parts = kArgmaxMaxParts;
  while (num_parts > 1 && num_rows * num_parts > kArgmaxBlocks) num_parts /= 2;
  return num_parts;
}

}  // namespace tessera::kernels
