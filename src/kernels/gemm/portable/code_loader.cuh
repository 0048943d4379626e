// Copies rows of codes, as they lie in memory, from global to shared memory.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/gemm/portable/launch.h"
#include "tessera/core/dtype.h"
#include "tile/ptx/cp_async.cuh"
#include "tile/unroll.cuh"

namespace tessera::kernels {

// Bits of a code: I4x2 and TableIndex stand for codes of 4 bits, any other type for codes of 8.
template <class Code>
inline constexpr int kCodeBits =
    std::is_same_v<Code, I4x2> || std::is_same_v<Code, TableIndex> ? 4 : 8;

// Copies a step of k of kRows rows to a stage by cp.async, 16 bytes at a time. A step is kRowBytes
// of a row; rows lie kRowStride bytes apart in the stage. Rows and bytes that do not exist become
// zeros.
template <int kRowBytes, int kRowStride, int kRows, int kThreads>
class CodeLoader {
  static constexpr int kChunks = kRowBytes / 16;
  static constexpr int kRowsAtOnce = kThreads / kChunks;
  static_assert(kRows % kRowsAtOnce == 0 && kRowStride % 16 == 0);

 public:
  // The tile's first row, the bytes from row to row, the rows that exist and the bytes of each.
  __device__ CodeLoader(const unsigned char* data, int64_t stride, int num_rows, int row_bytes,
                        int thread)
      : source_(data + thread / kChunks * stride + thread % kChunks * 16),
        pass_stride_(kRowsAtOnce * stride),
        rows_left_(num_rows - thread / kChunks),
        bytes_left_(row_bytes - thread % kChunks * 16),
        offset_(static_cast<uint32_t>(thread / kChunks * kRowStride + thread % kChunks * 16)) {}

  // Starts the copies of the next step into the stage at this shared address.
  __device__ void fetch(uint32_t stage) {
    const int num_bytes = min(max(bytes_left_, 0), 16);
    TESSERA_UNROLL
    for (int pass = 0; pass < kRows / kRowsAtOnce; ++pass) {
      const bool is_inside = pass * kRowsAtOnce < rows_left_;
      tile::ptx::cp_async<16>(stage + offset_ + pass * kRowsAtOnce * kRowStride,
                              is_inside ? source_ + pass * pass_stride_ : source_,
                              static_cast<uint32_t>(is_inside ? num_bytes : 0));
    }
    source_ += kRowBytes;
    bytes_left_ -= kRowBytes;
  }

 private:
  const unsigned char* source_;
  int64_t pass_stride_;
  int rows_left_;
  int bytes_left_;
  uint32_t offset_;
};

}  // namespace tessera::kernels
