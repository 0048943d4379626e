// Pools of pages for KV cache problems, in any format and layout, as bytes, so that the gaps
// between rows and pages are compared too.
// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <span>
#include <string>

#include "bench/problems/builder.h"
#include "tessera/ops/kv_cache.h"

namespace tessera::bench {

// How a pool is stored: options k_format, k_scales (of e4m3 and e5m2: 0 none, 1 one, 2 one per
// head) and k_dtype (of plain pages; absent: that of the tokens), and the same for v.
struct PoolFormat {
  KvFormat format;
  int64_t head_scales;
  DType dtype;
};
// The same, as options of a shape.
struct PoolOption {
  KvFormat format;
  int64_t head_scales = 0;
  std::optional<DType> dtype = {};
};
void append_options(Shape& shape, const PoolOption& k, const PoolOption& v);
// What workloads are measured in.
inline constexpr PoolOption kPoolWorkloads[] = {
    {KvFormat::plain}, {KvFormat::e4m3, 1}, {KvFormat::int8}, {KvFormat::int4_token}};
PoolFormat pool_format(const Builder& b, const std::string& k_or_v, DType token_dtype);

struct PoolSizes {
  int64_t pages, page_size, heads, d;
  // Options of a problem. heads_first: heads before rows. inside: 1, a page ends with its scales;
  // 2, a row ends with its scale. shift: bytes before the first row of a page.
  int64_t heads_first, inside, shift;
};
PoolSizes pool_sizes(const Builder& b, int64_t pages, int64_t page_size);

// Keys or values: their operands, and the layout of pages in them.
class Pool {
 public:
  // Adds the operands. Pages hold poison, or what fill() puts there.
  Pool(Builder& b, std::string_view name, Role role, const PoolFormat& format,
       const PoolSizes& sizes, size_t first_operand);

  size_t num_operands() const { return has_scale_operand_ ? 2 : 1; }
  // `views` are those of all operands.
  TensorView pages(std::span<const TensorView> views) const;
  TensorView scales(std::span<const TensorView> views) const;
  // Random codes and scales; only FP8 codes may be NaN.
  void fill(std::span<Operand> operands, Random random) const;
  // Bytes of one token in the pages, scales included (of columns a 32nd).
  double token_bytes() const;
  double page_bytes() const { return static_cast<double>(sizes_.page_size) * token_bytes(); }

 private:
  int64_t row_code_bytes() const { return storage_bytes(format_.dtype, sizes_.d); }
  int64_t row_bytes() const;
  int64_t scales_of_page() const;
  bool is_by_column() const { return traits(format_.format).scales == KvScales::column; }
  int64_t elements(int64_t bytes) const { return bytes * 8 / bit_width(format_.dtype); }
  void fill_values(const TensorView& view, Random random, float scale, float add) const;

  PoolFormat format_;
  PoolSizes sizes_;
  size_t operand_;
  int64_t scales_per_row_ = 0;
  int64_t scales_at_ = 0;    // byte offset in a page, if scales lie inside
  int64_t page_stride_ = 0;  // bytes
  bool has_scale_operand_ = false;
  bool has_row_scales_ = false;  // or column scales
};

}  // namespace tessera::bench
