// Copies rows of Q, K and V from global to shared memory, in any layout, in chunks of 16 bytes, and
// stores rows of out. Rows that no query of the tile sees become zeros and are not read.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/attention/mask.cuh"
#include "kernels/attention/params.h"
#include "tile/fragment.cuh"
#include "tile/ptx/cp_async.cuh"
#include "tile/swizzle.cuh"

namespace tessera::kernels::prefill_portable {

// Layout of 16-bit rows in shared memory: slabs of 128 bytes of every row (64 if rows are not
// multiples of 128), swizzled, so that neither ldmatrix nor the copies have bank conflicts.
template <int kRows, int kDim>
struct Slabs {
  static constexpr int kSpan = kDim % 64 == 0 ? 128 : 64;
  static constexpr int kSegmentChunks = kSpan / 16;
  static constexpr int kNumSegments = 2 * kDim / kSpan;
  static constexpr int kSegmentBytes = kRows * kSpan;
  static constexpr int kRowBytes = kSpan;
  static constexpr int kBytes = kNumSegments * kSegmentBytes;
  static_assert(2 * kDim % kSpan == 0);

  // Offset of a byte of a row in the first slab.
  __device__ static constexpr uint32_t at(int row, int byte) {
    return tile::swizzled(tile::swizzle_of_span(kSpan), static_cast<uint32_t>(row * kSpan + byte));
  }
  // A step of mma.sync's k is 32 bytes. From a row's offset in the first step to that in another:
  // an xor within a slab, since a step is a whole pair of chunks.
  __device__ static constexpr uint32_t at_step(uint32_t in_first, int step) {
    constexpr int kSteps = kSpan / 32;
    return (in_first ^ static_cast<uint32_t>(step % kSteps * 32)) +
           static_cast<uint32_t>(step / kSteps * kSegmentBytes);
  }
};

// Layout of rows of floats: one after the other, padded by kPad floats.
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
  const T* data;  // row 0; paged: row 0 of page 0
  int64_t row_stride;
  const int32_t* pages;  // page table of this sequence; null: not paged
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

// Copies a chunk of a head that fills the tile's columns and has rows on 16 bytes.
struct WholeHead {
  __device__ static void copy(uint32_t to, const void* from, int, uint32_t num_bytes) {
    tile::ptx::cp_async<16>(to, from, num_bytes);
  }
};

// Which rows of a block are read: all, contiguous; the wanted ones; the wanted ones, in pages.
enum class RowSet : uint8_t { whole, some, paged };

// Starts to copy kRows rows from `first` on to the shared address `target`. Unless the block is
// whole, rows with is_wanted(index) are read and the others become zeros. The source is passed by
// value: it may lie in shared memory, which the copies could overwrite as far as the compiler
// knows.
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

// The rows of a tile of queries; rows after the last become zeros.
template <class Layout, int kRows, int kThreads, class T, class Head>
__device__ void fetch_queries(const RowSource<T>& source, uint32_t target, int first, int last,
                              const Head& head) {
  fetch_rows<Layout, kRows, kThreads, RowSet::some>(
      source, target, first, [=](int index) { return index <= last; }, head);
}

// The rows of a block of keys from `first` on; rows whose bit in `seen` is 0 become zeros.
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

// A head that fills only some of a tile's columns: the rest are zeros in shared memory and are not
// stored.
struct PartialHead {
  int num_bytes;
  bool has_chunks;  // rows begin on 16 bytes; otherwise on 4

  // Copies 16 bytes of a row from byte `at` on; with wanted_bytes 0 they become zeros.
  __device__ void copy(uint32_t to, const void* from, int at, uint32_t wanted_bytes) const {
    const int left = wanted_bytes != 0 ? max(0, min(16, num_bytes - at)) : 0;
    if (has_chunks) {
      tile::ptx::cp_async<16>(to, from, static_cast<uint32_t>(left));
      return;
    }
    TESSERA_UNROLL
    for (int word = 0; word < 16; word += 4) {
      tile::ptx::cp_async<4>(to + word, static_cast<const char*>(from) + word,
                             static_cast<uint32_t>(max(0, min(4, left - word))));
    }
  }
};

// What padded instances read in addition.
struct PaddedAttentionParams : AttentionParams {
  PartialHead key_head;  // of q and k
  PartialHead value_head;
};
static_assert(std::is_trivially_copyable_v<PaddedAttentionParams>);

template <class Tile>
using ParamsOf = std::conditional_t<Tile::kIsPadded, PaddedAttentionParams, AttentionParams>;

__device__ inline WholeHead key_head(const AttentionParams&) { return {}; }
__device__ inline WholeHead value_head(const AttentionParams&) { return {}; }
__device__ inline PartialHead key_head(const PaddedAttentionParams& p) { return p.key_head; }
__device__ inline PartialHead value_head(const PaddedAttentionParams& p) { return p.value_head; }

// Stores a vector of elements of out at `at`, column `column` of its row: at once if the head has
// all of them and its rows are aligned, otherwise element by element.
template <class T, class Vector>
__device__ void store_columns(const WholeHead&, T* at, int, const Vector& vector) {
  *reinterpret_cast<Vector*>(at) = vector;
}
template <class T, class Vector>
__device__ void store_columns(const PartialHead& head, T* at, int column, const Vector& vector) {
  constexpr int kCount = sizeof(Vector) / sizeof(T);
  const int left = head.num_bytes / static_cast<int>(sizeof(T)) - column;
  if (head.has_chunks && left >= kCount) {
    *reinterpret_cast<Vector*>(at) = vector;
    return;
  }
  const T* values = reinterpret_cast<const T*>(&vector);
  TESSERA_UNROLL
  for (int i = 0; i < kCount; ++i) {
    if (i < left) at[i] = values[i];
  }
}

inline PaddedAttentionParams padded_params(const AttentionArgs& args) {
  const bool has_chunks = has_aligned_heads(args);
  const auto head = [&](const TensorView& t) {
    return PartialHead{static_cast<int>(t.size(-1) * bit_width(t.dtype) / 8), has_chunks};
  };
  return {attention_params(args), head(args.k), head(args.v)};
}

}  // namespace tessera::kernels::prefill_portable
