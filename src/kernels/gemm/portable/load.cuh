// How a step of k of one operand comes from global to shared memory: by chunks of 16 bytes, or
// element by element. The kernel asks for a step with fetch, and calls deposit when it has
// computed; both loaders leave the same bytes behind.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "tile/ptx/cp_async.cuh"
#include "tile/ptx/ld_global.cuh"
#include "tile/swizzle.cuh"
#include "tile/unroll.cuh"

namespace tessera::kernels {

// An operand as a loader sees it: rows of a tile, k-contiguous.
template <class T>
struct OperandRows {
  const T* data;   // the tile's first row
  int64_t stride;  // elements from row to row
  int num_rows;    // that exist from there on; those beyond are zeros
  int k;           // elements beyond are zeros
};

template <int kRowBytes>
inline constexpr tile::Swizzle kRowSwizzle =
    kRowBytes == 128 ? tile::Swizzle::b128 : tile::Swizzle::b64;

// kRows rows by copies of 16 bytes that need no registers. Rows must be aligned to 16 bytes; k may
// end within a chunk, whose rest becomes zeros.
template <class T, int kRows, int kRowBytes, int kThreads>
class ChunkLoader {
  static constexpr int kChunks = kRowBytes / 16;
  static constexpr int kRowsAtOnce = kThreads / kChunks;
  static constexpr int kPasses = kRows / kRowsAtOnce;
  static constexpr int kElements = kRowBytes / static_cast<int>(sizeof(T));
  static constexpr int kChunkElements = 16 / static_cast<int>(sizeof(T));
  static_assert(kRows % kRowsAtOnce == 0 && kRowsAtOnce % 8 == 0,
                "passes are whole periods of the swizzle apart");

 public:
  __device__ ChunkLoader(const OperandRows<T>& rows, int thread) {
    const int row = thread / kChunks;
    const int chunk = thread % kChunks;
    source_ = rows.data + row * rows.stride + chunk * kChunkElements;
    pass_stride_ = kRowsAtOnce * rows.stride;
    rows_left_ = rows.num_rows - row;
    k_left_ = rows.k - chunk * kChunkElements;
    offset_ =
        tile::swizzled(kRowSwizzle<kRowBytes>, static_cast<uint32_t>(row * kRowBytes + chunk * 16));
  }

  // Starts the copies of the next step into the stage at this shared address.
  __device__ void fetch(uint32_t stage) {
    const int num_elements = k_left_ < kChunkElements ? max(k_left_, 0) : kChunkElements;
    const int num_bytes = num_elements * static_cast<int>(sizeof(T));
    TESSERA_UNROLL
    for (int pass = 0; pass < kPasses; ++pass) {
      const bool is_inside = pass * kRowsAtOnce < rows_left_;
      tile::ptx::cp_async<16>(stage + offset_ + pass * kRowsAtOnce * kRowBytes,
                              source_ + pass * pass_stride_,
                              static_cast<uint32_t>(is_inside ? num_bytes : 0));
    }
    source_ += kElements;
    k_left_ -= kElements;
  }
  __device__ void deposit(uint32_t) const {}

 private:
  const T* source_;  // this thread's chunk of its first row
  int64_t pass_stride_;
  int rows_left_;
  int k_left_;
  uint32_t offset_;  // in a stage
};

// The same from any address: neighbouring lanes read neighbouring elements of k into registers, and
// store them when the step in hand is computed.
template <class T, int kRows, int kRowBytes, int kThreads>
class ElementLoader {
  static_assert(sizeof(T) == 2);
  static constexpr int kElements = kRowBytes / 2;
  static constexpr int kRowsAtOnce = kThreads / kElements;
  static constexpr int kPasses = kRows / kRowsAtOnce;
  static_assert(kThreads % kElements == 0 && kRows % kRowsAtOnce == 0);

 public:
  __device__ ElementLoader(const OperandRows<T>& rows, int thread)
      : row_(thread / kElements), element_(thread % kElements) {
    source_ = rows.data + row_ * rows.stride + element_;
    pass_stride_ = kRowsAtOnce * rows.stride;
    rows_left_ = rows.num_rows - row_;
    k_left_ = rows.k - element_;
  }

  __device__ void fetch(uint32_t) {
    TESSERA_UNROLL
    for (int pass = 0; pass < kPasses; ++pass) {
      tile::ptx::ld_global_if(source_ + pass * pass_stride_,
                              k_left_ > 0 && pass * kRowsAtOnce < rows_left_, values_[pass]);
    }
    source_ += kElements;
    k_left_ -= kElements;
  }
  __device__ void deposit(uint32_t stage) const {
    TESSERA_UNROLL
    for (int pass = 0; pass < kPasses; ++pass) {
      const int row = row_ + pass * kRowsAtOnce;
      const uint32_t offset = tile::swizzled(kRowSwizzle<kRowBytes>,
                                             static_cast<uint32_t>(row * kRowBytes + element_ * 2));
      asm volatile("st.shared.b16 [%0], %1;" ::"r"(stage + offset), "h"(values_[pass][0])
                   : "memory");
    }
  }

 private:
  const T* source_;  // this thread's element of its first row
  int64_t pass_stride_;
  int row_;
  int element_;
  int rows_left_;
  int k_left_;
  uint16_t values_[kPasses][1];
};

}  // namespace tessera::kernels
