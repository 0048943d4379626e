// Pages and scales cut out of byte pools.
// SPDX-License-Identifier: MIT
#include "bench/problems/kv_pool.h"

#include "core/parallel.h"
#include "core/text.h"

namespace tessera::bench {
namespace {

int64_t rounded_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

TensorView view_of(void* data, DType dtype, std::initializer_list<int64_t> shape,
                   std::initializer_list<int64_t> strides, Device device) {
  TensorView view = TensorView::contiguous(data, dtype, std::initializer_list<int64_t>{1}, device);
  view.rank = static_cast<int>(shape.size());
  std::ranges::copy(shape, view.shape.begin());
  std::ranges::copy(strides, view.strides.begin());
  return view;
}

}  // namespace

void append_options(Shape& shape, const PoolOption& k, const PoolOption& v) {
  shape.emplace_back("k_format", option(k.format));
  shape.emplace_back("v_format", option(v.format));
  if (k.head_scales > 0) shape.emplace_back("k_scales", k.head_scales);
  if (v.head_scales > 0) shape.emplace_back("v_scales", v.head_scales);
  if (k.dtype) shape.emplace_back("k_dtype", option(*k.dtype));
  if (v.dtype) shape.emplace_back("v_dtype", option(*v.dtype));
}

PoolFormat pool_format(const Builder& b, const std::string& k_or_v, DType token_dtype) {
  const auto format = static_cast<KvFormat>(b.get(k_or_v + "_format"));
  const auto plain = static_cast<DType>(b.get(k_or_v + "_dtype", option(token_dtype)));
  return {format, b.get(k_or_v + "_scales"), pages_dtype(format, plain)};
}

PoolSizes pool_sizes(const Builder& b, int64_t pages, int64_t page_size) {
  return {pages,           page_size,     b.get("kv_heads"), b.get("d"), b.get("heads_first"),
          b.get("inside"), b.get("shift")};
}

Pool::Pool(Builder& b, std::string_view name, Role role, const PoolFormat& format,
           const PoolSizes& sizes, size_t first_operand)
    : format_(format),
      sizes_(sizes),
      operand_(first_operand),
      scales_per_row_(traits(format.format).scales_per_row()) {
  has_row_scales_ = scales_per_row_ > 0 || is_by_column();
  const int64_t code_bytes = sizes.shift + sizes.page_size * sizes.heads * row_bytes();
  scales_at_ = rounded_up(code_bytes, 2);
  const bool is_inside = sizes.inside == 1 && has_row_scales_;
  page_stride_ = rounded_up(scales_at_ + (is_inside ? 2 * scales_of_page() : 0), 16);
  const std::string scales_name = concat(name, "_scales");
  b.dense(concat(name, "_pages"), role, DType::u8, {sizes.pages, page_stride_});
  if (has_row_scales_ && (sizes.inside == 0 || (is_by_column() && sizes.inside == 2))) {
    has_scale_operand_ = true;
    b.dense(scales_name, role, DType::f16, {sizes.pages, scales_of_page()});
  }
  if (format.head_scales > 0) {
    has_scale_operand_ = true;
    const int64_t count = format.head_scales == 2 ? sizes.heads : 1;
    Operand& scales = b.dense(scales_name, Role::input, DType::f32, {count});
    const Random random = b.random();
    fill_vector(scales, [&](int64_t i) {
      return b.is_normal() ? 0.01f + std::abs(random.normal(i)) : 0.5f;
    });
  }
}

// The stride of a head's rows; a row with a scale at its end is rounded up to a multiple of 2
// bytes.
int64_t Pool::row_bytes() const {
  if (sizes_.inside != 2 || scales_per_row_ == 0) return row_code_bytes();
  return rounded_up(row_code_bytes(), 2) + 2 * scales_per_row_;
}

int64_t Pool::scales_of_page() const {
  if (is_by_column()) return sizes_.page_size / kKvGroup * sizes_.heads * sizes_.d * 2;
  return sizes_.page_size * sizes_.heads * scales_per_row_;
}

TensorView Pool::pages(std::span<const TensorView> views) const {
  const TensorView& bytes = views[operand_];
  const int64_t row = row_bytes();
  const int64_t row_stride = sizes_.heads_first != 0 ? row : sizes_.heads * row;
  const int64_t head_stride = sizes_.heads_first != 0 ? sizes_.page_size * row : row;
  return view_of(bytes.as<char>() + sizes_.shift, format_.dtype,
                 {sizes_.pages, sizes_.page_size, sizes_.heads, sizes_.d},
                 {elements(page_stride_), elements(row_stride), elements(head_stride), 1},
                 bytes.device);
}

TensorView Pool::scales(std::span<const TensorView> views) const {
  if (format_.head_scales > 0) return views[operand_ + 1];
  if (!has_row_scales_) return {};
  const int64_t heads = sizes_.heads, n = scales_per_row_, d = sizes_.d;
  if (sizes_.inside == 2 && !is_by_column()) {
    const TensorView rows = pages(views);
    const auto pairs_of_bytes = [&](int axis) {
      return storage_bytes(format_.dtype, rows.stride(axis)) / 2;
    };
    return view_of(rows.as<char>() + rounded_up(row_code_bytes(), 2), DType::f16,
                   {sizes_.pages, sizes_.page_size, heads, n},
                   {page_stride_ / 2, pairs_of_bytes(1), pairs_of_bytes(2), 1}, rows.device);
  }
  const TensorView& from = views[has_scale_operand_ ? operand_ + 1 : operand_];
  char* data = from.as<char>() + (has_scale_operand_ ? 0 : scales_at_);
  const int64_t page = has_scale_operand_ ? scales_of_page() : page_stride_ / 2;
  if (is_by_column()) {
    return view_of(data, DType::f16,
                   {sizes_.pages, sizes_.page_size / kKvGroup, heads, d, int64_t{2}},
                   {page, heads * d * 2, d * 2, int64_t{2}, int64_t{1}}, from.device);
  }
  return view_of(data, DType::f16, {sizes_.pages, sizes_.page_size, heads, n},
                 {page, heads * n, n, int64_t{1}}, from.device);
}

void Pool::fill_values(const TensorView& view, Random random, float scale, float add) const {
  const int64_t last = view.size(-1), num_rows = view.num_elements() / last;
  parallel_for(num_rows, last, [&](int64_t row) {
    int64_t rest = row, offset = 0;
    for (int d = view.rank - 2; d >= 0; --d) {
      offset += rest % view.size(d) * view.stride(d);
      rest /= view.size(d);
    }
    for (int64_t i = 0; i < last; ++i) {
      store(view, offset + i, scale * random.normal(row * last + i) + add);
    }
  });
}

void Pool::fill(std::span<Operand> operands, Random random) const {
  std::vector<TensorView> views(operands.size());
  for (size_t i = operand_; i < operand_ + num_operands(); ++i) {
    if (operands[i].host.size_bytes() == 0) return;
    views[i] = operands[i].place(operands[i].host.view().data, cpu_device());
  }
  const TensorView bytes = operands[operand_].host.view();
  const Random code_random = random.stream(0);
  parallel_for(bytes.num_elements(), 1, [&](int64_t i) {
    bytes.as<uint8_t>()[i] = static_cast<uint8_t>(code_random.bits(i) >> 24);
  });
  if (is_float16_or_32(format_.dtype)) fill_values(pages(views), random.stream(1), 1.0f, 0.0f);
  if (has_row_scales_) fill_values(scales(views), random.stream(2), 0.05f, 0.3f);
}

double Pool::token_bytes() const {
  const auto codes = static_cast<double>(sizes_.heads * row_code_bytes());
  const auto scales = static_cast<double>(has_row_scales_ ? 2 * scales_of_page() : 0);
  return codes + scales / static_cast<double>(sizes_.page_size);
}

}  // namespace tessera::bench
