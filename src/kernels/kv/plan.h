// How a call on a KV cache becomes a kernel's parameters: strides, alignment, the walk over a page.
// Plain functions of shapes, strides and addresses, tested without a GPU.
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "kernels/kv/params.h"

namespace tessera::kernels {

inline constexpr int kKvVec = 8;           // elements of a row that a lane moves at a time
inline constexpr int kKvAccessBytes = 16;  // the widest access
inline constexpr int kMaxKvLanes = 32;     // that share a row

// Whether scale and low of kKvVec columns from a multiple of that on are two aligned accesses.
inline bool has_column_vectors(const TensorView& scales) {
  if (scales.stride(3) != 2 || scales.size(3) % kKvVec != 0) return false;
  uint64_t bits = reinterpret_cast<uintptr_t>(scales.data);
  for (int d = 0; d < 3; ++d) bits |= static_cast<uint64_t>(scales.stride(d)) * sizeof(F16);
  return bits % kKvAccessBytes == 0;
}

// fp8's scales are found like those of rows, with strides of 0.
inline KvPool make_pool(const TensorView& pages, const TensorView& scales) {
  KvPool pool{.data = pages.data,
              .scales = scales.data,
              .page_stride = pages.stride(0),
              .row_stride = pages.stride(1),
              .head_stride = pages.stride(2),
              .dtype = pages.dtype,
              .format = kv_format(pages, scales)};
  if (pool.format == KvFormat::fp8) {
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
  // So many bits an element are so many bytes a vector.
  const int64_t access = std::min(int64_t{bit_width(view.dtype)}, int64_t{kKvAccessBytes});
  if (view.size(-1) % kKvVec != 0) return false;
  if (static_cast<int64_t>(reinterpret_cast<uintptr_t>(view.data)) % access != 0) return false;
  for (int d = 0; d < view.rank - 1; ++d) {
    // i4 strides are even wherever they are used.
    if (view.size(d) > 1 && view.stride(d) * bit_width(view.dtype) / 8 % access != 0) return false;
  }
  return true;
}

// Lanes that share a row of head_dim elements, as a power of two.
constexpr int count_log_lanes(int64_t head_dim) {
  const int64_t num_vecs = std::min((head_dim + kKvVec - 1) / kKvVec, int64_t{kMaxKvLanes});
  return static_cast<int>(std::bit_width(static_cast<uint64_t>(num_vecs) - 1));
}

// Slots are divided in 32 bits.
inline bool has_countable_slots(const KvAppendArgs& args) {
  return args.k_pages.size(0) <= kMaxDividend / args.k_pages.size(1);
}

// Whether a row fits its lanes' registers, and rotated pairs are whole vectors apart.
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

// One page of a view as nested runs of bytes: axes of size 1 gone, sorted by stride, merged where
// one runs on into the next. The innermost is contiguous.
struct ByteWalk {
  char* data;
  int64_t page_stride;
  int rank = 0;
  std::array<ByteAxis, kMaxPageAxes> axes{};

  ByteAxis& axis(int d) { return axes[static_cast<size_t>(d)]; }
  const ByteAxis& axis(int d) const { return axes[static_cast<size_t>(d)]; }
  void insert(ByteAxis added) {
    if (added.size == 1) return;
    if (added.stride < 0) {  // start from the other end: every byte moves to its own place anyway
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
  // The elements of an i4 row lie side by side; its other strides are whole bytes.
  walk.insert({is_i4 ? storage_bytes(pool.dtype, pool.size(-1)) : element_bytes, 1});
  for (int d = 1; d < pool.rank - (is_i4 ? 1 : 0); ++d) {
    walk.insert({pool.size(d), is_i4 ? pool.stride(d) / 2 : pool.stride(d) * element_bytes});
  }
  walk.merge();
  return walk;
}

// The widest unit that addresses, strides and the innermost run are multiples of.
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
inline constexpr int kCopyUnits = 4;  // of a thread
inline constexpr int64_t kMaxPageUnits = int64_t{1} << 30;

// For pages of at most kMaxPageUnits, and at least one byte.
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

// Units of a page are counted in 32 bits.
inline bool has_countable_pages(const KvCopyPagesArgs& args) {
  for (const TensorView* pool : {&args.k_pages, &args.v_pages, &args.k_scales, &args.v_scales}) {
    if (pool->rank < 4) continue;
    const ByteWalk walk = walk_bytes(*pool);
    if (count_units(walk, choose_unit_bytes(walk)) > kMaxPageUnits) return false;
  }
  return true;
}

}  // namespace tessera::kernels
