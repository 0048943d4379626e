// Rows of a KV cache as floats, in every format.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "cpu/simd_dispatch.h"
#include "tessera/ops/kv_cache.h"

namespace tessera::cpu {

// Keys, or values, of one layer. The views must have passed the checks of an operation.
class KvRows {
 public:
  KvRows(const TensorView& pages, const TensorView& scales);

  int64_t head_dim() const { return pages_.size(3); }
  KvFormat format() const { return format_; }

  void read(int64_t page, int64_t row, int64_t head, float* elements) const;
  // The address of a row of plain pages.
  std::byte* row(int64_t page, int64_t row, int64_t head) const;
  // Every format without a tail.
  void write(int64_t page, int64_t row, int64_t head, const float* elements) const;
  // Formats with scales by column: 32 rows of head_dim elements, group `group` of the page.
  void write_group(int64_t page, int64_t group, int64_t head, const float* rows) const;

 private:
  struct Scale {
    float scale = 1.0f;
    float low = 0.0f;
  };
  int64_t element(int64_t page, int64_t row, int64_t head) const;
  // The element of the scale, followed by the low, of a row or of a group's first column.
  int64_t scale_element(int64_t page, int64_t row_or_group, int64_t head) const;
  Scale scale_at(int64_t element) const;
  float head_scale(int64_t head) const;
  uint8_t* nibbles(int64_t element) const { return pages_.as<uint8_t>() + element / 2; }

  TensorView pages_;
  TensorView scales_;
  KvFormat format_;
};

// Strides of pages, of rows within a page, and of heads, in elements.
struct PageStrides {
  int64_t page = 0;
  int64_t row = 0;
  int64_t head = 0;
};

// Keys, or values, of one layer as vector code reads them: the same elements as KvRows.
struct KvPages {
  KvFormat format = KvFormat::plain;
  DType dtype = DType::f32;    // of the elements, or of their codes
  const void* data = nullptr;  // [num_pages, page_size, num_kv_heads, head_dim]
  PageStrides strides;
  // What KvScales of the format says: f32 by head, f16 by row or column; null: none.
  const void* scales = nullptr;
  PageStrides scale_strides;  // a row is a group of 32 tokens if scales are by column
  int64_t column_stride = 0;  // by column: from one column's scale to the next
};
KvPages kv_pages(const TensorView& pages, const TensorView& scales);

// Tokens [begin, begin + count) of one sequence and head; begin is a multiple of 64 and count at
// most that.
struct KvRun {
  const int32_t* table = nullptr;  // of the sequence
  int64_t page_size = 0;
  int64_t head = 0;
  int64_t head_dim = 0;
  int64_t begin = 0;
  int64_t count = 0;
};
inline constexpr int64_t kKvRun = 64;
// Floats from one row that kv_read_builds() write to the next, and of all they need.
int64_t kv_run_stride(int64_t head_dim);
int64_t kv_run_floats(int64_t head_dim);
SimdBuilds<void(const KvPages&, const KvRun&, float*)> kv_read_builds();

// The tokens of a call's sequences. `kv` must outlive it.
class KvTokens {
 public:
  explicit KvTokens(const PagedKv& kv);

  int64_t length(int64_t sequence) const { return kv_.seq_lens.as<int32_t>()[sequence]; }
  // The first token whose key is in the tail; the length if there is none.
  int64_t tail_begin(int64_t sequence) const;
  int64_t page(int64_t sequence, int64_t token) const;
  void read_k(int64_t sequence, int64_t token, int64_t head, float* elements) const;
  void read_v(int64_t sequence, int64_t token, int64_t head, float* elements) const;

 private:
  const PagedKv& kv_;
  KvRows k_;
  KvRows v_;
};

// Refuses lengths, pages and tails out of range. `op` begins the message.
void check_tokens(std::string_view op, const PagedKv& kv);
// Tails alone, where keys have any.
void check_tails(std::string_view op, const PagedKv& kv);

}  // namespace tessera::cpu
