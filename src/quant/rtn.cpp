// Round to nearest, with scales of the whole range or with searched ones.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cstring>

#include "core/parallel.h"
#include "core/text.h"
#include "ops/round_scales.h"
#include "quant/check.h"
#include "quant/grid.h"
#include "quant/round_rows.h"
#include "tessera/core/error.h"
#include "tessera/ops/quantize.h"
#include "tessera/quant/quantizers.h"

namespace tessera::quant {
namespace {

QuantizedWeight quantize_blocks(const TensorView& w, const QuantFormat& format,
                                const Context& ctx) {
  const int64_t n = w.size(0), k = w.size(1);
  QuantizedWeight made = empty_rows(format, n, k);
  const int64_t across = made.scale.view().size(1);
  for (int64_t row = 0; row < n; row += kBlockSide) {
    for (int64_t col = 0; col < k; col += kBlockSide) {
      const auto block_of = [&](const TensorView& matrix) {
        return matrix.slice(0, row, std::min(n, row + kBlockSide))
            .slice(1, col, std::min(k, col + kBlockSide));
      };
      float* scale = made.scale.view().as<float>() + row / kBlockSide * across + col / kBlockSide;
      ops::quantize_rounded({.x = block_of(w),
                             .out = block_of(made.values),
                             .scale = TensorView::contiguous(scale, DType::f32, {1}, w.device)},
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
  made.group = group;
  if (format.codes == CodeFormat::fp8_block) made.rows_per_scale = kBlockSide;
  const int64_t down = (n + made.rows_per_scale - 1) / made.rows_per_scale;
  const int64_t across = (k + group - 1) / group;
  made.scale = Tensor(DType::f32, {down, across});
  if (format.has_zero_points()) made.zero_point = Tensor(DType::i32, {down, across});
  return made;
}

QuantizedWeight quantize_rtn(const TensorView& w, const QuantFormat& format, const Context& ctx) {
  expect_matrix("quantize_rtn: w", w);
  check_format(format, w.size(0), w.size(1), "quantize_rtn: w");
  if (format.codes == CodeFormat::fp8_block) return quantize_blocks(w, format, ctx);
  QuantizedWeight made = empty_rows(format, w.size(0), w.size(1));
  if (format.codes == CodeFormat::fp8) {
    ops::quantize_rounded({.x = w, .out = made.values, .scale = made.scale}, format.scale_dtype,
                          ctx);
    return made;
  }
  parallel_for(w.size(0), w.size(1), [&](int64_t row) {
    round_integer_rows(w.slice(0, row, row + 1), format, row, made, nullptr);
  });
  return made;
}

void round_rows(const TensorView& w, const QuantFormat& format, int64_t first,
                const QuantizedWeight& to, float* values) {
  if (format.codes == CodeFormat::int4 || format.codes == CodeFormat::int8) {
    return round_integer_rows(w, format, first, to, values);
  }
  const QuantizedWeight part = quantize_rtn(w, format);
  const Tensor stood_for = dequantize(part);
  const auto put = [](const Tensor& from, const TensorView& whole, int64_t row) {
    const TensorView rows = whole.slice(0, row, row + from.view().size(0));
    std::memcpy(rows.data, from.view().data, static_cast<size_t>(from.size_bytes()));
  };
  put(part.values, to.values, first);
  put(part.scale, to.scale, first / to.rows_per_scale);
  std::memcpy(values, stood_for.view().data, static_cast<size_t>(stood_for.size_bytes()));
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
