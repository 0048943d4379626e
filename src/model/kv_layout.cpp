// Sizes and places of pages and scales.
// SPDX-License-Identifier: MIT
#include "model/kv_layout.h"

#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::model {
namespace {

constexpr int64_t kSectionBytes = 256;    // keys, values and their scales begin on it
constexpr int64_t kScaleRunElements = 8;  // 16 bytes of f16

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

void check(const KvOptions& options, int64_t num_kv_heads, int64_t head_dim, DType key_type) {
  if (options.num_pages < 1 || options.page_size < 1 || num_kv_heads < 1) {
    fail(concat("KvMemory: num_pages is ", options.num_pages, ", page_size ", options.page_size,
                ", num_kv_heads ", num_kv_heads, "; each must be at least 1"));
  }
  if (has_tails(options.type) && (options.page_size % kKvGroup != 0 || options.num_tails < 1)) {
    fail(concat("KvMemory: page_size is ", options.page_size, " and num_tails ", options.num_tails,
                "; ", name(options.type), " needs pages of a multiple of ", kKvGroup,
                " tokens and a tail for every sequence"));
  }
  if (bit_width(key_type) == 4 && head_dim % 2 != 0) {
    fail(concat("KvMemory: head_dim is ", head_dim, "; ", name(options.type),
                " puts two elements into a byte, so it must be even"));
  }
}

}  // namespace

KvLayout::KvLayout(const ModelConfig& config, int64_t num_kv_heads, const KvOptions& options)
    : options_(options), num_kv_heads_(num_kv_heads), head_dim_(config.head_dim) {
  keys_ = make_part(options.type);
  values_ = make_part(traits(options.type).values);
  check(options, num_kv_heads, head_dim_, keys_.dtype);
}

KvLayout::Part KvLayout::make_part(KvFormat format) const {
  const DType dtype = pages_dtype(format, options_.dtype);
  const int64_t scales_per_row = traits(format).scales_per_row();
  const bool has_columns = traits(format).scales == KvScales::column;
  Part part{.dtype = dtype, .scales_per_row = scales_per_row, .has_columns = has_columns};
  part.data_bytes = storage_bytes(dtype, options_.page_size * num_kv_heads_ * head_dim_);
  int64_t num_scales = 0;
  if (has_columns) {
    num_scales = options_.page_size / kKvGroup * num_kv_heads_ * head_dim_ * 2;
  } else if (scales_per_row > 0) {
    part.run = round_up(options_.page_size * scales_per_row, kScaleRunElements);
    num_scales = num_kv_heads_ * part.run;
  }
  part.scale_bytes = storage_bytes(DType::f16, num_scales);
  return part;
}

int64_t KvLayout::data_section(const Part& part) const {
  return round_up(part.data_bytes * options_.num_pages, kSectionBytes);
}

int64_t KvLayout::scale_section(const Part& part) const {
  return round_up(part.scale_bytes * options_.num_pages, kSectionBytes);
}

int64_t KvLayout::page_bytes() const {
  return keys_.data_bytes + keys_.scale_bytes + values_.data_bytes + values_.scale_bytes;
}

int64_t KvLayout::layer_bytes() const {
  return data_section(keys_) + data_section(values_) + scale_section(keys_) +
         scale_section(values_);
}

int64_t KvLayout::tail_bytes() const {
  if (!has_tails(options_.type)) return 0;
  return storage_bytes(options_.dtype, kKvGroup * num_kv_heads_ * head_dim_);
}

TensorView KvLayout::scales_view(const Part& part, std::byte* data, Device device) const {
  const int64_t num_pages = options_.num_pages, page_size = options_.page_size;
  if (part.has_columns) {
    return TensorView::contiguous(
        data, DType::f16, {num_pages, page_size / kKvGroup, num_kv_heads_, head_dim_, 2}, device);
  }
  if (part.scales_per_row == 0) return {};
  TensorView view = TensorView::contiguous(
      data, DType::f16, {num_pages, page_size, num_kv_heads_, part.scales_per_row}, device);
  view.strides = {num_kv_heads_ * part.run, part.scales_per_row, part.run, 1};
  return view;
}

// Tokens are the outer axis and heads the inner one; for quantised rows, which are short, the other
// way round, because memory is read faster in runs of more than 64 bytes (docs/kernels/decode.md).
TensorView KvLayout::pages_view(DType dtype, std::byte* data, Device device) const {
  const int64_t page_size = options_.page_size;
  TensorView view = TensorView::contiguous(
      data, dtype, {options_.num_pages, page_size, num_kv_heads_, head_dim_}, device);
  if (bit_width(dtype) < 16) {
    view.strides = {view.stride(0), head_dim_, page_size * head_dim_, 1};
  }
  return view;
}

PagedKv KvLayout::views(const TensorView& memory) const {
  std::byte* const keys = memory.as<std::byte>();
  std::byte* const values = keys + data_section(keys_);
  std::byte* const key_scales = values + data_section(values_);
  std::byte* const value_scales = key_scales + scale_section(keys_);
  return {.k_pages = pages_view(keys_.dtype, keys, memory.device),
          .v_pages = pages_view(values_.dtype, values, memory.device),
          .page_table = {},
          .seq_lens = {},
          .k_scales = scales_view(keys_, key_scales, memory.device),
          .v_scales = scales_view(values_, value_scales, memory.device)};
}

int64_t kv_page_bytes(const ModelConfig& config, int64_t num_kv_heads, const KvOptions& options) {
  KvOptions one = options;
  one.num_pages = 1;
  one.num_tails = 1;
  return config.num_layers * KvLayout(config, num_kv_heads, one).page_bytes();
}

int64_t kv_tail_bytes(const ModelConfig& config, int64_t num_kv_heads, const KvOptions& options) {
  KvOptions one = options;
  one.num_pages = 1;
  one.num_tails = 1;
  return config.num_layers * KvLayout(config, num_kv_heads, one).tail_bytes();
}

}  // namespace tessera::model
