// What the softmax kernels read, and how a block covers a row.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <type_traits>

namespace tessera::kernels {

enum class MaskKind : uint8_t {
  none,
  visible,  // u8: 0 hides
  added,    // f32: minus infinity hides
};

// Plain data, copied by value into constant memory. Strides count elements.
struct SoftmaxParams {
  const void* x;     // [num_rows, cols]
  const void* mask;  // [mask_rows, cols]; row r reads mask row r % mask_rows; null without a mask
  void* out;         // [num_rows, cols]; may be x

  int64_t x_stride;
  int64_t mask_stride;
  int64_t out_stride;
  int64_t num_rows;
  int64_t mask_rows;  // at least 1
  int cols;
  float scale;
  bool is_vectorized;  // every access is a whole aligned vector: chooses the instance
};
static_assert(std::is_trivially_copyable_v<SoftmaxParams>);

inline constexpr int kSoftmaxMaxThreads = 512;  // with the row in registers: 128 a thread
inline constexpr int kSoftmaxLongThreads = 1024;
inline constexpr int kSoftmaxLongVecs = 2;  // loads in flight for each thread of a long row

// Vectors of a row that each thread keeps, or 0: the row does not fit in registers and is walked.
constexpr int choose_softmax_vecs(int num_vecs) {
  if (num_vecs <= 32) return 1;
  if (num_vecs <= 2 * kSoftmaxMaxThreads) return 2;
  return num_vecs <= 4 * kSoftmaxMaxThreads ? 4 : 0;
}

}  // namespace tessera::kernels
