// A block of keys and values as floats, whatever format the pages have, for one instruction set.
// SPDX-License-Identifier: MIT
//
// Compiled once for each instruction set of hwy/foreach_target.h, so the include guard below is
// toggled for each. Include it after hwy/highway.h.
#if defined(TESSERA_CPU_ATTENTION_BLOCK_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_CPU_ATTENTION_BLOCK_H
#undef TESSERA_CPU_ATTENTION_BLOCK_H
#else
#define TESSERA_CPU_ATTENTION_BLOCK_H
#endif

#include <algorithm>
#include <cstdint>
#include <utility>

#include "cpu/attention_elements.h"
#include "cpu/attention_rows.h"
#include "cpu/attention_vectors.h"
#include "hwy/highway.h"
#include "tessera/core/convert.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {
namespace {

// Keys [begin, end) of the 64 of a block.
struct KeyRange {
  int64_t begin = 0;
  int64_t end = 0;
};

// For each key of a block, the element at which its row begins, and its scale or that of its
// group's first column.
struct BlockRows {
  int64_t elements[kKeyBlock];
  int64_t scales[kKeyBlock];
};

// Of each key of a block, or of each column of a group of keys.
struct Factors {
  const float* scales;
  const float* lows;
};

// Rows as floats, to_stride apart, zeros behind them. It also prefetches the rows of the next
// block: those of one head are apart and pages anywhere, so the hardware prefetcher does not find
// them.
template <class T, bool kByColumn = false>
HWY_NOINLINE void read_rows(const void* data, const BlockRows& rows, KeyRange keys,
                            const Factors& factors, const BlockRows& next, int64_t next_end,
                            int64_t head_dim, float* to, int64_t to_stride) {
  for (int64_t key = keys.begin; key < keys.end; ++key) {
    const T* row = row_at<T>(data, rows.elements[key]);
    float* floats = to + key * to_stride;
    if (key < next_end) {
      const T* ahead = row_at<T>(data, next.elements[key]);
      const T* ahead_end = row_at<T>(ahead, head_dim);
      for (; ahead < ahead_end; ahead += 64 / sizeof(T)) __builtin_prefetch(ahead);
    }
    Vector scale{}, low{};
    if constexpr (!kIsPlain<T> && !kByColumn) {
      scale = hn::Set(kFloats, factors.scales[key]);
      low = hn::Set(kFloats, factors.lows[key]);
    }
    int64_t i = 0;
    for (; i + kLanes <= head_dim; i += kLanes) {
      Vector x = load_floats(kFloats, row, i);
      if constexpr (kByColumn) {
        scale = hn::LoadU(kFloats, factors.scales + i);
        low = hn::LoadU(kFloats, factors.lows + i);
      }
      if constexpr (!kIsPlain<T>) x = hn::Add(hn::Mul(x, scale), low);
      hn::StoreU(x, kFloats, floats + i);
    }
    for (; i < head_dim; ++i) {
      floats[i] = float_at(row, i);
      if constexpr (kIsPlain<T>) continue;
      const int64_t at = kByColumn ? i : key;
      const float product = floats[i] * factors.scales[at];
      floats[i] = product + factors.lows[at];
    }
    for (; i < to_stride; ++i) floats[i] = 0.0f;
  }
}

// Pairs of a scale and a low, apart and as floats.
HWY_NOINLINE void separate(const F16* pairs, int64_t count, float* scales, float* lows) {
  for (; count >= kLanes; count -= kLanes, pairs += 2 * kLanes, scales += kLanes, lows += kLanes) {
    const Vector a = load_floats(kFloats, pairs, 0), b = load_floats(kFloats, pairs, kLanes);
    hn::StoreU(hn::ConcatEven(kFloats, b, a), kFloats, scales);
    hn::StoreU(hn::ConcatOdd(kFloats, b, a), kFloats, lows);
  }
  for (; count > 0; --count, pairs += 2) {
    *scales++ = to_float(pairs[0]);
    *lows++ = to_float(pairs[1]);
  }
}

// The rows of one sequence and head, block after block.
class PagedRows {
 public:
  PagedRows(const KvPages& pages, const int32_t* table, int64_t page_size, int64_t kv_head,
            int64_t head_dim)
      : pages_(pages),
        table_(table),
        page_size_(page_size),
        kv_head_(kv_head),
        head_dim_(head_dim) {}

  // Finds the rows of positions [block + begin, end) in the block, and those of the next. A page
  // number is read only if a row before `end` is in its page.
  void enter(int64_t block, int64_t begin, int64_t end) {
    if (block == next_block_) {
      std::swap(now_, next_);
    } else {
      find(block, begin, std::min(end, block + kKeyBlock), rows_[now_]);
    }
    next_block_ = block + kKeyBlock;
    next_end_ = std::max<int64_t>(0, std::min(end - next_block_, kKeyBlock));
    find(next_block_, 0, next_block_ + next_end_, rows_[next_]);
  }

  // Keys of the block as floats; key k becomes row k. `scratch` has room for two rows.
  void read(KeyRange keys, float* to, int64_t to_stride, float* scratch) const {
    if (is_by_column()) return read_by_column(keys, to, to_stride, scratch);
    alignas(64) float scales[kKeyBlock], lows[kKeyBlock];
    load_scales(keys, scales, lows);
    const Factors factors{scales, lows};
    switch (pages_.dtype) {
      case DType::f16: return read_as<F16>(keys, factors, to, to_stride);
      case DType::bf16: return read_as<Bf16>(keys, factors, to, to_stride);
      case DType::e4m3: return read_as<E4m3>(keys, factors, to, to_stride);
      case DType::e5m2: return read_as<E5m2>(keys, factors, to, to_stride);
      case DType::i8: return read_as<int8_t>(keys, factors, to, to_stride);
      case DType::u8: return read_as<uint8_t>(keys, factors, to, to_stride);
      case DType::i4: return read_as<Nibbles>(keys, factors, to, to_stride);
      default: return read_as<float>(keys, factors, to, to_stride);
    }
  }

 private:
  bool is_by_column() const { return traits(pages_.format).scales == KvScales::column; }

  void find(int64_t block, int64_t begin, int64_t end, BlockRows& rows) const {
    const PageStrides& by = pages_.strides;
    const PageStrides& scale_by = pages_.scale_strides;
    for (int64_t position = block + begin; position < end;) {
      const int64_t page = table_[position / page_size_];
      const int64_t slot = position % page_size_;
      const int64_t count = std::min(page_size_ - slot, end - position);
      const int64_t first = page * by.page + kv_head_ * by.head;
      const int64_t first_scale = page * scale_by.page + kv_head_ * scale_by.head;
      for (int64_t i = 0; i < count; ++i) {
        const int64_t scale_row = is_by_column() ? (slot + i) / kKvGroup : slot + i;
        rows.elements[position - block + i] = first + (slot + i) * by.row;
        rows.scales[position - block + i] = first_scale + scale_row * scale_by.row;
      }
      position += count;
    }
  }

  template <class T, bool kByColumn = false>
  void read_as(KeyRange keys, const Factors& factors, float* to, int64_t to_stride) const {
    read_rows<T, kByColumn>(pages_.data, rows_[now_], keys, factors, rows_[next_], next_end_,
                            head_dim_, to, to_stride);
  }

  // A scale and a low for each row; for plain pages nothing.
  void load_scales(KeyRange keys, float* scales, float* lows) const {
    const KvFormatTraits& format = traits(pages_.format);
    if (format.scales == KvScales::head) {
      const auto* all = static_cast<const float*>(pages_.scales);
      const float scale = all == nullptr ? 1.0f : all[kv_head_ * pages_.scale_strides.head];
      std::fill_n(scales, kKeyBlock, scale);
      std::fill_n(lows, kKeyBlock, 0.0f);
    }
    if (format.scales != KvScales::row) return;
    const auto* all = static_cast<const F16*>(pages_.scales);
    F16 pairs[2 * kKeyBlock] = {};
    for (int64_t key = keys.begin; key < keys.end; ++key) {
      const F16* scale = all + rows_[now_].scales[key];
      pairs[2 * key] = scale[0];
      if (format.has_low) pairs[2 * key + 1] = scale[1];
    }
    separate(pairs, kKeyBlock, scales, lows);
  }

  // Only i4 has scales by column.
  void read_by_column(KeyRange keys, float* to, int64_t to_stride, float* scratch) const {
    float* scales = scratch;
    float* lows = scratch + to_stride;
    for (KeyRange group = keys; group.begin < keys.end; group.begin = group.end) {
      group.end = std::min(keys.end, (group.begin / kKvGroup + 1) * kKvGroup);
      const F16* pairs = static_cast<const F16*>(pages_.scales) + rows_[now_].scales[group.begin];
      if (pages_.column_stride == 2) {
        separate(pairs, head_dim_, scales, lows);
      } else {
        for (int64_t i = 0; i < head_dim_; ++i, pairs += pages_.column_stride) {
          separate(pairs, 1, scales + i, lows + i);
        }
      }
      read_as<Nibbles, true>(group, {scales, lows}, to, to_stride);
    }
  }

  const KvPages& pages_;
  const int32_t* table_;
  int64_t page_size_;
  int64_t kv_head_;
  int64_t head_dim_;
  BlockRows rows_[2];
  int now_ = 0, next_ = 1;
  int64_t next_block_ = -1;
  int64_t next_end_ = 0;  // of the next block's keys
};

}  // namespace
}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // the guard of this instruction set
