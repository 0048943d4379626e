// Round to nearest, with scales of the whole range or with searched ones.
// SPDX-License-Identifier: MIT
#include <algorithm>

#include "core/parallel.h"
#include "core/text.h"
#include "quant/check.h"
#include "quant/grid.h"
#include "tessera/core/error.h"
#include "tessera/ops/quantize.h"
#include "tessera/quant/quantizers.h"

namespace tessera::quant {
namespace {

void round_scales(const TensorView& scale, DType dtype) {
  auto* values = scale.as<float>();
  for (int64_t i = 0; i < scale.num_elements(); ++i) {
    const float rounded = rounded_to(dtype, values[i]);
    values[i] = rounded == 0.0f ? values[i] : rounded;  // below the smallest of the type
  }
}

// Finds the scales, rounds them, and rounds the values by them.
void quantize_part(const TensorView& w, const TensorView& out, const TensorView& scale,
                   const Tensor& zero_point, DType scale_dtype, const Context& ctx) {
  QuantizeArgs args{.x = w, .out = out, .scale = scale};
  if (zero_point.view().rank > 0) args.zero_point = zero_point.view();
  quantize(args, ctx);
  if (scale_dtype == DType::f32) return;
  round_scales(scale, scale_dtype);
  args.mode = ScaleMode::fixed;
  quantize(args, ctx);
}

QuantizedWeight quantize_blocks(const TensorView& w, const QuantFormat& format,
                                const Context& ctx) {
  const int64_t n = w.size(0), k = w.size(1);
  const int64_t across = (k + kBlockSide - 1) / kBlockSide;
  QuantizedWeight made{
      .values = Tensor(format.code_dtype(), {n, k}, w.device),
      .scale = Tensor(DType::f32, {(n + kBlockSide - 1) / kBlockSide, across}, w.device),
      .zero_point = {},
      .order = {},
      .rows_per_scale = kBlockSide,
      .group = kBlockSide};
  for (int64_t row = 0; row < n; row += kBlockSide) {
    for (int64_t col = 0; col < k; col += kBlockSide) {
      const auto block_of = [&](const TensorView& matrix) {
        return matrix.slice(0, row, std::min(n, row + kBlockSide))
            .slice(1, col, std::min(k, col + kBlockSide));
      };
      float* scale = made.scale.view().as<float>() + row / kBlockSide * across + col / kBlockSide;
      quantize_part(block_of(w), block_of(made.values),
                    TensorView::contiguous(scale, DType::f32, {1}, w.device), Tensor(),
                    format.scale_dtype, ctx);
    }
  }
  return made;
}

}  // namespace

QuantizedWeight empty_rows(const QuantFormat& format, int64_t n, int64_t k) {
  const int64_t group = format.group_of(k);
  QuantizedWeight made;
  made.values = Tensor(format.code_dtype(), {n, k});
  made.scale = Tensor(DType::f32, {n, k / group});
  if (format.has_zero_points()) made.zero_point = Tensor(DType::i32, {n, k / group});
  made.group = group;
  return made;
}

QuantizedWeight quantize_rtn(const TensorView& w, const QuantFormat& format, const Context& ctx) {
  expect_matrix("quantize_rtn: w", w);
  check_format(format, w.size(0), w.size(1), "quantize_rtn: w");
  if (format.codes == CodeFormat::fp8_block) return quantize_blocks(w, format, ctx);
  QuantizedWeight made = empty_rows(format, w.size(0), w.size(1));
  quantize_part(w, made.values, made.scale, made.zero_point, format.scale_dtype, ctx);
  return made;
}

QuantizedWeight quantize_clipped(const TensorView& w, std::span<const float> importance,
                                 const QuantFormat& format, const Context& ctx) {
  expect_matrix("quantize_clipped: w", w);
  expect_integers("quantize_clipped", format);
  const int64_t n = w.size(0), k = w.size(1), group = format.group_of(k);
  check_format(format, n, k, "quantize_clipped: w");
  if (static_cast<int64_t>(importance.size()) != k) {
    fail(concat("quantize_clipped: importance has ", importance.size(), " values and w is ",
                to_string(w), "; give one for each column"));
  }
  QuantizedWeight made = empty_rows(format, n, k);
  const int64_t num_groups = k / group;
  parallel_for(n, 50 * k, [&](int64_t row) {
    for (int64_t g = 0; g < num_groups; ++g) {
      const Grid grid = search_grid(w.as<float>() + row * w.stride(0) + g * group,
                                    importance.data() + g * group, group, format);
      made.scale.view().as<float>()[row * num_groups + g] = grid.scale;
      if (format.has_zero_points()) {
        made.zero_point.view().as<int32_t>()[row * num_groups + g] = grid.zero;
      }
    }
  });
  QuantizeArgs args{
      .x = w, .out = made.values, .scale = made.scale.view(), .mode = ScaleMode::fixed};
  if (format.has_zero_points()) args.zero_point = made.zero_point.view();
  quantize(args, ctx);
  return made;
}

}  // namespace tessera::quant
