// What the KV cache kernels read, how a call becomes it, and the launchers. Plain functions of
// shapes, strides and addresses, tested without a GPU.
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "kernels/divisor.h"
#include "tessera/ops/kv_cache.h"

namespace tessera::kernels::kv {

// Parameters are plain data, copied by value into constant memory. Strides count elements; the
// innermost dimension is contiguous and has none.

// Keys, or values, in pages.
struct KvPool {
  void* data;           // [num_pages, page_size, num_kv_heads, head_dim]
  void* scales;         // as scale_kind says; null: none
  int64_t page_stride;  // even for i4, like all its strides
  int64_t row_stride;
  int64_t head_stride;
  int64_t scale_page_stride = 0;  // 0 with scales by head
  int64_t scale_row_stride = 0;   // with scales by column: from one group of 32 rows to the next
  int64_t scale_head_stride = 0;
  int64_t scale_column_stride = 0;  // with scales by column
  DType dtype;
  KvScales scale_kind;
  bool has_low;                     // a scale has a low beside it
  bool has_column_vectors = false;  // scales and lows of 8 columns are aligned vectors

  constexpr int64_t element(int64_t page, int64_t row, int64_t head) const {
    return page * page_stride + row * row_stride + head * head_stride;
  }
  constexpr int64_t scale_element(int64_t page, int64_t row_or_group, int64_t head) const {
    return page * scale_page_stride + row_or_group * scale_row_stride + head * scale_head_stride;
  }
};

// q, k or v of a call's tokens.
struct KvHeads {
  void* data;  // [tokens, num_heads, head_dim]
  int64_t token_stride;
  int64_t head_stride;
  int64_t num_heads;  // 0: not processed by the kernel

  constexpr int64_t element(int64_t token, int64_t head) const {
    return token * token_stride + head * head_stride;
  }
};

struct KvAppendParams {
  KvHeads q;  // rotated; empty without a table
  KvHeads k;  // rotated and stored
  KvHeads v;
  const void* slots;  // [tokens]; int64_t or int32_t, see has_long_slots
  KvPool k_pages;
  KvPool v_pages;
  KvPool k_tail;           // [num_tails, 32, num_kv_heads, head_dim]; empty without a tail
  const void* tail_slots;  // [tokens]; int64_t or int32_t, see has_long_tail_slots
  const void* positions;   // [tokens]; int64_t or int32_t, see has_long_positions
  const float* table;      // [num_positions, rotary_dim]: cosines, then sines; null: no rotation

  int64_t num_tokens;
  int64_t num_slots;       // num_pages * page_size, at most kMaxDividend
  int64_t num_tail_slots;  // num_tails * 32
  int64_t num_positions;
  int64_t num_rows;  // heads of q, k and v of one token
  int64_t num_kv_heads;
  Divisor page_size;
  int head_dim;
  int rotary_dim;  // 0 without a table
  int log_lanes;   // 2^log_lanes lanes share a row
  bool is_interleaved;
  bool has_long_slots;
  bool has_long_tail_slots;
  bool has_long_positions;
};
static_assert(std::is_trivially_copyable_v<KvAppendParams>);

struct KvGatherParams {
  KvPool k_pages;
  KvPool v_pages;
  KvPool k_tail;  // [num_tails, 32, num_kv_heads, head_dim]; empty without a tail
  KvHeads k;      // written
  KvHeads v;
  const int32_t* page_table;  // [batch, max_pages]; null: sequence s has page s
  const int32_t* seq_lens;    // [batch]
  const int32_t* tails;       // [batch]; null without a tail
  const int32_t* starts;      // [batch]: the row in k and v of a sequence's first token

  int64_t table_stride;
  int64_t batch;
  int64_t num_pages;
  int64_t num_tails;
  int64_t num_rows;  // of k and v
  Divisor page_size;
  Divisor rows_per_token;  // 2 * num_kv_heads
  int most_tokens;         // upper bound for a sequence: tokens that have pages and rows
  int log_item_tokens;     // an item is 2^log_item_tokens tokens
  int head_dim;
  int log_lanes;  // 2^log_lanes lanes share a row
};
static_assert(std::is_trivially_copyable_v<KvGatherParams>);

inline constexpr int kMaxPageAxes = 6;  // five of the view and the bytes of an element
inline constexpr int kMaxCopiedPools = 4;

// How one page of a pool is traversed. Strides count units.
struct PageWalk {
  struct Axis {
    Divisor size;
    int64_t stride;
  };

  char* data;                    // the first unit of page 0
  int64_t page_stride;           // bytes
  uint32_t num_units;            // of a page
  int unit_bytes;                // 1, 2, 4, 8 or 16
  uint32_t num_blocks;           // blocks of threads per page
  int rank = 0;                  // 0: a page is one unit
  Axis axes[kMaxPageAxes] = {};  // innermost first

  // Offset of unit `index` of a page, in units.
  constexpr int64_t offset_of(uint32_t index) const {
    int64_t offset = 0;
    for (int d = 0; d < rank - 1; ++d) {
      const QuotientRemainder at = divide_with_remainder(index, axes[d].size);
      offset += at.remainder * axes[d].stride;
      index = at.quotient;
    }
    // The rest lies along the last axis: a contiguous page needs no division.
    return rank == 0 ? 0 : offset + index * axes[rank - 1].stride;
  }
};

struct KvCopyPagesParams {
  const int32_t* sources;  // [count]
  const int32_t* targets;  // [count]
  int64_t count;
  int64_t num_pages;
  int num_pools;
  PageWalk pools[kMaxCopiedPools];
};
static_assert(std::is_trivially_copyable_v<KvCopyPagesParams>);

inline constexpr int kKvVec = 8;           // elements of a row that a lane moves at a time
inline constexpr int kKvAccessBytes = 16;  // the widest access
inline constexpr int kMaxKvLanes = 32;     // lanes that share a row

// Whether scales and lows of kKvVec columns, from a multiple of kKvVec on, are two aligned
// accesses.
inline bool has_column_vectors(const TensorView& scales) {
  if (scales.stride(3) != 2 || scales.size(3) % kKvVec != 0) return false;
  uint64_t bits = reinterpret_cast<uintptr_t>(scales.data);
  for (int d = 0; d < 3; ++d) bits |= static_cast<uint64_t>(scales.stride(d)) * sizeof(F16);
  return bits % kKvAccessBytes == 0;
}

// Scales by head are addressed like those of rows, with page and row strides of 0.
inline KvPool make_pool(const TensorView& pages, const TensorView& scales) {
  const KvFormatTraits& format = traits(kv_format(pages, scales));
  KvPool pool{.data = pages.data,
              .scales = scales.data,
              .page_stride = pages.stride(0),
              .row_stride = pages.stride(1),
              .head_stride = pages.stride(2),
              .dtype = pages.dtype,
              .scale_kind = format.scales,
              .has_low = format.has_low};
  if (pool.scale_kind == KvScales::head) {
    pool.scale_head_stride = scales.rank == 1 && scales.size(0) > 1 ? 1 : 0;
  } else if (scales.rank >= 4) {
    pool.scale_page_stride = scales.stride(0);
    pool.scale_row_stride = scales.stride(1);
    pool.scale_head_stride = scales.stride(2);
    if (scales.rank == 5) {
      pool.scale_column_stride = scales.stride(3);
      pool.has_column_vectors = has_column_vectors(scales);
    }
  }
  return pool;
}

inline KvHeads make_heads(const TensorView& view) {
  return {.data = view.data,
          .token_stride = view.stride(0),
          .head_stride = view.stride(1),
          .num_heads = view.size(1)};
}

// Whether the rows of a view can be moved in whole aligned vectors of kKvVec elements.
inline bool lies_on_vectors(const TensorView& view) {
  // 8 elements: as many bytes per vector as bits per element.
  const int64_t access = std::min(int64_t{bit_width(view.dtype)}, int64_t{kKvAccessBytes});
  if (view.size(-1) % kKvVec != 0) return false;
  if (static_cast<int64_t>(reinterpret_cast<uintptr_t>(view.data)) % access != 0) return false;
  for (int d = 0; d < view.rank - 1; ++d) {
    // i4 strides are always even.
    if (view.size(d) > 1 && view.stride(d) * bit_width(view.dtype) / 8 % access != 0) return false;
  }
  return true;
}

// log2 of the lanes that share a row of head_dim elements.
constexpr int count_log_lanes(int64_t head_dim) {
  const int64_t num_vecs = std::min((head_dim + kKvVec - 1) / kKvVec, int64_t{kMaxKvLanes});
  return static_cast<int>(std::bit_width(static_cast<uint64_t>(num_vecs) - 1));
}

// Slots are divided in 32-bit arithmetic.
inline bool has_countable_slots(const KvAppendArgs& args) {
  return args.k_pages.size(0) <= kMaxDividend / args.k_pages.size(1);
}

// Whether a row fits into the registers of its lanes, and rotated pairs are whole vectors apart.
inline bool can_append_vectors(const KvAppendArgs& args) {
  if (args.k.size(2) > kKvVec * kMaxKvLanes) return false;
  for (const TensorView* view : {&args.k, &args.v, &args.k_pages, &args.v_pages}) {
    if (!lies_on_vectors(*view)) return false;
  }
  if (!args.rope) return true;
  const auto table = reinterpret_cast<uintptr_t>(args.rope->table.data);
  return lies_on_vectors(args.rope->q) && args.rope->table.size(1) % (2 * kKvVec) == 0 &&
         table % kKvAccessBytes == 0;
}

inline bool can_gather_vectors(const KvGatherArgs& args) {
  for (const TensorView* view : {&args.k, &args.v, &args.kv.k_pages, &args.kv.v_pages}) {
    if (!lies_on_vectors(*view)) return false;
  }
  return args.kv.k_tail.rank != 4 || lies_on_vectors(args.kv.k_tail);
}

struct ByteAxis {
  int64_t size;
  int64_t stride;  // bytes
};

// One page of a view as nested runs of bytes: axes of size 1 dropped, the rest sorted by stride and
// merged where one continues the other. The innermost is contiguous.
struct ByteWalk {
  char* data;
  int64_t page_stride;
  int rank = 0;
  std::array<ByteAxis, kMaxPageAxes> axes{};

  ByteAxis& axis(int d) { return axes[static_cast<size_t>(d)]; }
  const ByteAxis& axis(int d) const { return axes[static_cast<size_t>(d)]; }
  void insert(ByteAxis added) {
    if (added.size == 1) return;
    if (added.stride <
        0) {  // start from the other end; every byte is copied to its own place anyway
      data += (added.size - 1) * added.stride;
      added.stride = -added.stride;
    }
    int place = rank++;
    for (; place > 0 && added.stride < axis(place - 1).stride; --place) {
      axis(place) = axis(place - 1);
    }
    axis(place) = added;
  }
  void merge() {
    int kept = 0;
    for (int d = 0; d < rank; ++d) {
      const bool runs_on =
          kept > 0 && axis(d).stride == axis(kept - 1).size * axis(kept - 1).stride;
      if (runs_on) {
        axis(kept - 1).size *= axis(d).size;
      } else {
        axis(kept++) = axis(d);
      }
    }
    rank = kept;
  }
};

inline ByteWalk walk_bytes(const TensorView& pool) {
  const bool is_i4 = pool.dtype == DType::i4;
  const int64_t element_bytes = storage_bytes(pool.dtype, 1);
  ByteWalk walk{.data = pool.as<char>(),
                .page_stride = is_i4 ? pool.stride(0) / 2 : pool.stride(0) * element_bytes};
  // The elements of an i4 row are contiguous; its other strides are whole bytes.
  walk.insert({is_i4 ? storage_bytes(pool.dtype, pool.size(-1)) : element_bytes, 1});
  for (int d = 1; d < pool.rank - (is_i4 ? 1 : 0); ++d) {
    walk.insert({pool.size(d), is_i4 ? pool.stride(d) / 2 : pool.stride(d) * element_bytes});
  }
  walk.merge();
  return walk;
}

// The widest unit that divides addresses, strides and the innermost run.
inline int choose_unit_bytes(const ByteWalk& walk) {
  uint64_t bits = reinterpret_cast<uintptr_t>(walk.data) | static_cast<uint64_t>(walk.page_stride) |
                  uint64_t{kKvAccessBytes};
  const bool has_run = walk.rank > 0 && walk.axis(0).stride == 1;
  bits |= has_run ? static_cast<uint64_t>(walk.axis(0).size) : 1;
  for (int d = 1; d < walk.rank; ++d) bits |= static_cast<uint64_t>(walk.axis(d).stride);
  return static_cast<int>(bits & (~bits + 1));
}

inline int64_t count_units(const ByteWalk& walk, int unit_bytes) {
  int64_t num_bytes = 1;
  for (int d = 0; d < walk.rank; ++d) num_bytes *= walk.axis(d).size;
  return num_bytes / unit_bytes;
}

inline constexpr int kCopyThreads = 256;
inline constexpr int kCopyUnits = 4;  // per thread
inline constexpr int64_t kMaxPageUnits = int64_t{1} << 30;

// For pages of 1 byte to kMaxPageUnits units.
inline PageWalk walk_page(const TensorView& pool) {
  constexpr int64_t kUnitsOfBlock = kCopyThreads * kCopyUnits;
  const ByteWalk bytes = walk_bytes(pool);
  const int unit_bytes = choose_unit_bytes(bytes);
  const int64_t num_units = count_units(bytes, unit_bytes);
  PageWalk walk{
      .data = bytes.data,
      .page_stride = bytes.page_stride,
      .num_units = static_cast<uint32_t>(num_units),
      .unit_bytes = unit_bytes,
      .num_blocks = static_cast<uint32_t>((num_units + kUnitsOfBlock - 1) / kUnitsOfBlock)};
  for (int d = 0; d < bytes.rank; ++d) {
    const ByteAxis& axis = bytes.axis(d);
    const bool is_run = d == 0 && axis.stride == 1;
    const int64_t size = is_run ? axis.size / unit_bytes : axis.size;
    if (size == 1) continue;
    walk.axes[walk.rank++] = {make_divisor(size), is_run ? 1 : axis.stride / unit_bytes};
  }
  return walk;
}

// Whether the units of a page can be counted in 32 bits.
inline bool has_countable_pages(const KvCopyPagesArgs& args) {
  for (const TensorView* pool : {&args.k_pages, &args.v_pages, &args.k_scales, &args.v_scales}) {
    if (pool->rank < 4) continue;
    const ByteWalk walk = walk_bytes(*pool);
    if (count_units(walk, choose_unit_bytes(walk)) > kMaxPageUnits) return false;
  }
  return true;
}

// The launchers that the tables point at; a row without an instance does not link.
template <class Arch, class T>
void launch_append(const KvAppendArgs& args, const Context& ctx);
template <class Arch, class T>
void launch_gather(const KvGatherArgs& args, const Context& ctx);
template <class Arch>
void launch_copy_pages(const KvCopyPagesArgs& args, const Context& ctx);

}  // namespace tessera::kernels::kv
