// How rows of Q, K and V come from global to shared memory, from any of the layouts, by chunks of
// 16 bytes. Rows that no query of the tile sees are zeros and are not read.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "kernels/attention/params.h"
#include "kernels/attention/sequence.cuh"
#include "tile/fragment.cuh"
#include "tile/ptx/cp_async.cuh"
#include "tile/swizzle.cuh"

namespace tessera::kernels {

// Where 16-bit rows lie in shared memory: cut into slabs of 128 bytes of every row (64 where the
// rows are not multiples of 128), swizzled, so that neither ldmatrix nor the copies meet a bank
// conflict whatever the head dim.
template <int kRows, int kDim>
struct Slabs {
  static constexpr int kSpan = kDim % 64 == 0 ? 128 : 64;
  static constexpr int kSegmentChunks = kSpan / 16;
  static constexpr int kNumSegments = 2 * kDim / kSpan;
  static constexpr int kSegmentBytes = kRows * kSpan;
  static constexpr int kRowBytes = kSpan;
  static constexpr int kBytes = kNumSegments * kSegmentBytes;
  static_assert(2 * kDim % kSpan == 0);

  // Of a byte of a row in the first slab.
  __device__ static constexpr uint32_t at(int row, int byte) {
    return tile::swizzled(tile::swizzle_of_span(kSpan), static_cast<uint32_t>(row * kSpan + byte));
  }
  // 32 bytes are a step of the k of mma.sync. From the place of a row in the first step to that in
  // another: exclusive or within a slab, since a step moves by whole pairs of chunks.
  __device__ static constexpr uint32_t at_step(uint32_t in_first, int step) {
    constexpr int kSteps = kSpan / 32;
    return (in_first ^ static_cast<uint32_t>(step % kSteps * 32)) +
           static_cast<uint32_t>(step / kSteps * kSegmentBytes);
  }
};

// Where rows of floats lie: one after the other, kPad floats apart.
template <int kRows, int kDim, int kPad>
struct PaddedRows {
  static constexpr int kSegmentChunks = 8;
  static constexpr int kNumSegments = kDim / 32;
  static constexpr int kSegmentBytes = 128;
  static constexpr int kRowBytes = 4 * (kDim + kPad);
  static constexpr int kBytes = kRows * kRowBytes;
  static_assert(kDim % 32 == 0 && kPad % 4 == 0);

  __device__ static constexpr uint32_t at(int row, int byte) {
    return static_cast<uint32_t>(row * kRowBytes + byte);
  }
};

// The rows of one head of one sequence in global memory.
template <class T>
struct RowSource {
  const T* data;  // row 0, or with pages row 0 of page 0
  int64_t row_stride;
  const int32_t* pages;  // of this sequence; null: rows follow each other
  int64_t page_stride;
  int page_shift;  // log2 of the rows of a page
};

template <class T>
__device__ RowSource<T> query_rows(const AttentionParams& p, const Sequence& s, int head) {
  const RowStrides& strides = p.q_strides;
  return {static_cast<const T*>(p.q) + s.index * strides.batch + s.q_begin * strides.row +
              head * strides.head,
          strides.row, nullptr, 0, 0};
}

template <class T>
__device__ RowSource<T> kv_rows(const void* data, const RowStrides& strides, const int32_t* table,
                                int64_t table_stride, int page_size, const Sequence& s,
                                int kv_head) {
  const T* first = static_cast<const T*>(data) + kv_head * strides.head;
  if (table != nullptr) {
    return {first, strides.row, table + s.index * table_stride, strides.batch,
            31 - __clz(page_size)};
  }
  return {first + s.index * strides.batch + s.kv_begin * strides.row, strides.row, nullptr, 0, 0};
}
template <class T>
__device__ RowSource<T> key_rows(const AttentionParams& p, const Sequence& s, int kv_head) {
  return kv_rows<T>(p.k, p.k_strides, p.k_page_table, p.k_table_stride, p.page_size, s, kv_head);
}
template <class T>
__device__ RowSource<T> value_rows(const AttentionParams& p, const Sequence& s, int kv_head) {
  return kv_rows<T>(p.v, p.v_strides, p.v_page_table, p.v_table_stride, p.page_size, s, kv_head);
}

// Heads that fill a tile's columns, their rows on 16 bytes: how a chunk of one is copied. Heads
// that do not are in padded.cuh.
struct WholeHead {
  __device__ static void copy(uint32_t to, const void* from, int, uint32_t num_bytes) {
    tile::ptx::cp_async<16>(to, from, num_bytes);
  }
};

// Which rows of a block are there: all of them, one after the other; those asked for; those asked
// for, in pages.
enum class RowSet : uint8_t { whole, some, paged };

// Starts the copies of kRows rows from `first` on to the shared address `target`. Unless the block
// is whole, those are read for which is_wanted(index), and the others are zeros. A source by value:
// it may lie in shared memory, which the copies could write for all that the compiler knows.
template <class Layout, int kRows, int kThreads, RowSet kSet, class T, class IsWanted, class Head>
__device__ void fetch_rows(const RowSource<T> source, uint32_t target, int first,
                           IsWanted is_wanted, const Head& head) {
  constexpr int kChunkElements = 16 / static_cast<int>(sizeof(T));
  constexpr int kRowsAtOnce = kThreads / Layout::kSegmentChunks;
  constexpr int kPasses = kRows / kRowsAtOnce;
  static_assert(kRows % kRowsAtOnce == 0 && kRowsAtOnce % 8 == 0,
                "passes are whole periods of the swizzle apart");
  const int thread = static_cast<int>(threadIdx.x);
  const int row = thread / Layout::kSegmentChunks;
  const int chunk = thread % Layout::kSegmentChunks;
  const T* data = source.data + chunk * kChunkElements;
  const T* from[kPasses];
  uint32_t num_bytes[kPasses];
  TESSERA_UNROLL
  for (int pass = 0; pass < kPasses; ++pass) {
    const int index = first + row + pass * kRowsAtOnce;
    num_bytes[pass] = kSet == RowSet::whole || is_wanted(index) ? 16 : 0;
    if constexpr (kSet == RowSet::paged) {
      const int page = num_bytes[pass] != 0 ? source.pages[index >> source.page_shift] : 0;
      const int in_page = index & ((1 << source.page_shift) - 1);
      from[pass] = data + page * source.page_stride + in_page * source.row_stride;
    } else if constexpr (kSet == RowSet::some) {
      from[pass] = num_bytes[pass] != 0 ? data + index * source.row_stride : data;
    } else {
      from[pass] = pass == 0 ? data + index * source.row_stride
                             : from[pass - 1] + kRowsAtOnce * source.row_stride;
    }
  }
  const uint32_t at = target + Layout::at(row, 16 * chunk);
  TESSERA_UNROLL
  for (int pass = 0; pass < kPasses; ++pass) {
    TESSERA_UNROLL
    for (int segment = 0; segment < Layout::kNumSegments; ++segment) {
      head.copy(at + pass * kRowsAtOnce * Layout::kRowBytes + segment * Layout::kSegmentBytes,
                from[pass] + segment * Layout::kSegmentChunks * kChunkElements,
                16 * (chunk + segment * Layout::kSegmentChunks), num_bytes[pass]);
    }
  }
}

// The rows of a tile of queries; those beyond its last are zeros.
template <class Layout, int kRows, int kThreads, class T, class Head>
__device__ void fetch_queries(const RowSource<T>& source, uint32_t target, int first, int last,
                              const Head& head) {
  fetch_rows<Layout, kRows, kThreads, RowSet::some>(
      source, target, first, [=](int index) { return index <= last; }, head);
}

// The rows of a block of keys from `first` on; those whose bit of `seen` is not set are zeros.
template <class Layout, int kRows, int kThreads, class T, class Head>
__device__ void fetch_keys(const RowSource<T>& source, uint32_t target, int first, uint64_t seen,
                           const Head& head) {
  constexpr uint64_t kWhole = ~uint64_t{0} >> (64 - kRows);
  const auto is_seen = [=](int index) { return (seen >> (index - first) & 1) != 0; };
  if (source.pages != nullptr) {
    fetch_rows<Layout, kRows, kThreads, RowSet::paged>(source, target, first, is_seen, head);
  } else if (seen == kWhole) {
    fetch_rows<Layout, kRows, kThreads, RowSet::whole>(source, target, first, is_seen, head);
  } else {
    fetch_rows<Layout, kRows, kThreads, RowSet::some>(source, target, first, is_seen, head);
  }
}

}  // namespace tessera::kernels
