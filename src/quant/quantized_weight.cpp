// Quantised weights: formats, views and values.
// SPDX-License-Identifier: MIT
#include "tessera/quant/quantized_weight.h"

#include <algorithm>

#include "core/parallel.h"
#include "core/text.h"
#include "tessera/core/error.h"
#include "tessera/ops/quantize.h"

namespace tessera::quant {

std::optional<CodeFormat> find_code_format(std::string_view text) {
  for (const CodeFormat format : kAllCodeFormats) {
    if (name(format) == text) return format;
  }
  return std::nullopt;
}

void check_format(const QuantFormat& format, int64_t n, int64_t k, std::string_view what) {
  if (format.codes != CodeFormat::int4) return;
  const int64_t group = format.group_of(k);
  if (k <= 0 || group % 2 != 0 || k % group != 0) {
    fail(concat(what, " is [", n, ", ", k, "] and the group is ", group,
                "; a group must be even and divide ", k, ": use --group 32, 64 or 128, or 0 for a ",
                "scale for each row"));
  }
}

Weight QuantizedWeight::view() const {
  Weight weight{.values = values, .scale = scale.view()};
  if (zero_point.view().rank > 0) weight.zero_point = zero_point.view();
  if (order.view().rank > 0) weight.order = order.view();
  weight.rows_per_scale = rows_per_scale;
  weight.group = group;
  return weight;
}

int64_t QuantizedWeight::size_bytes(DType scale_dtype) const {
  const int64_t num_scales = scale.view().num_elements();
  int64_t bytes = values.size_bytes() + storage_bytes(scale_dtype, num_scales);
  if (zero_point.view().rank > 0) bytes += storage_bytes(DType::i4, num_scales);
  if (order.view().rank > 0) bytes += order.size_bytes();
  return bytes;
}

namespace {

// Blocks one by one: each has one scale.
void dequantize_blocks(const QuantizedWeight& weight, const TensorView& out, const Context& ctx) {
  const TensorView& values = weight.values;
  const int64_t n = values.size(0), k = values.size(1), across = weight.scale.view().size(1);
  for (int64_t row = 0; row < n; row += weight.rows_per_scale) {
    for (int64_t col = 0; col < k; col += weight.group) {
      const int64_t row_end = std::min(n, row + weight.rows_per_scale);
      const int64_t col_end = std::min(k, col + weight.group);
      const int64_t index = row / weight.rows_per_scale * across + col / weight.group;
      dequantize({.x = values.slice(0, row, row_end).slice(1, col, col_end),
                  .scale = TensorView::contiguous(weight.scale.view().as<float>() + index,
                                                  DType::f32, {1}, values.device),
                  .out = out.slice(0, row, row_end).slice(1, col, col_end)},
                 ctx);
    }
  }
}

}  // namespace

Tensor dequantize(const QuantizedWeight& weight, const Context& ctx) {
  const TensorView& values = weight.values;
  Tensor out(DType::f32, {values.size(0), values.size(1)}, values.device);
  if (weight.rows_per_scale > 1) {
    dequantize_blocks(weight, out, ctx);
    return out;
  }
  DequantizeArgs args{.x = values, .scale = weight.scale.view(), .out = out};
  if (weight.zero_point.view().rank > 0) args.zero_point = weight.zero_point.view();
  tessera::dequantize(args, ctx);
  if (weight.order.view().rank == 0) return out;
  Tensor plain(DType::f32, {values.size(0), values.size(1)});
  const auto* order = weight.order.view().as<int32_t>();
  const int64_t k = values.size(1);
  parallel_for(values.size(0), k, [&](int64_t row) {
    const float* from = out.view().as<float>() + row * k;
    float* to = plain.view().as<float>() + row * k;
    for (int64_t i = 0; i < k; ++i) to[order[i]] = from[i];
  });
  return plain;
}

}  // namespace tessera::quant
