// Pools of pages for KV cache problems: in any format and layout, as bytes, so that what lies
// between rows and pages is compared too.
// SPDX-License-Identifier: MIT
#pragma once

#include <span>

#include "bench/problems/builder.h"
#include "tessera/ops/kv_cache.h"

namespace tessera::bench {

// Formats as problems number them: 0 the type of the tokens, 1 to 3 e4m3 (no scale, one, one a
// head), 4 e5m2, 5 i8, 6 u8, 7 i4, 8 i4 by columns, 9 f32, 10 f16, 11 bf16.
enum class PoolFormat : uint8_t {
  tokens,
  e4m3,
  e4m3_tensor,
  e4m3_heads,
  e5m2,
  i8,
  u8,
  i4,
  i4_columns,
  f32,
  f16,
  bf16
};

struct PoolSizes {
  int64_t pages, page_size, heads, d;
  // Options of a problem. heads_first: heads before rows. inside: 1, a page ends with its scales;
  // 2, a row ends with its scale. shift: bytes before the first row of a page.
  int64_t heads_first, inside, shift;
};
PoolSizes pool_sizes(const Builder& b, int64_t pages, int64_t page_size);

// Keys, or values: which operands they are, and how the pages lie in them.
class Pool {
 public:
  // Adds the operands. Pages hold poison, or what fill() puts there.
  Pool(Builder& b, std::string_view name, Role role, PoolFormat format, DType token_dtype,
       const PoolSizes& sizes, size_t first_operand);

  size_t num_operands() const { return has_scale_operand_ ? 2 : 1; }
  // Among the views of all operands.
  TensorView pages(std::span<const TensorView> views) const;
  TensorView scales(std::span<const TensorView> views) const;
  // Codes and scales at random, numbers all of them but for codes of FP8.
  void fill(std::span<Operand> operands, Random random) const;
  // That one token takes in the pages, scales included (of columns a 32nd).
  double token_bytes() const;
  double page_bytes() const { return static_cast<double>(sizes_.page_size) * token_bytes(); }

 private:
  int64_t row_code_bytes() const { return storage_bytes(dtype_, sizes_.d); }
  int64_t row_bytes() const;
  int64_t scales_of_page() const;
  bool is_by_column() const { return format_ == PoolFormat::i4_columns; }
  int64_t elements(int64_t bytes) const { return bytes * 8 / bit_width(dtype_); }
  void fill_values(const TensorView& view, Random random, float scale, float add) const;

  PoolFormat format_;
  DType dtype_;
  PoolSizes sizes_;
  size_t operand_;
  int64_t scales_per_row_ = 0;
  int64_t scales_at_ = 0;    // of a page, in bytes, where they are inside it
  int64_t page_stride_ = 0;  // bytes
  bool has_scale_operand_ = false;
  bool has_row_scales_ = false;  // or columns'
};

}  // namespace tessera::bench
