// Rows from a checkpoint to codes.
// SPDX-License-Identifier: MIT
#include "quant_model/round_stored.h"

#include <algorithm>

#include "core/parallel.h"
#include "model/slice_reader.h"
#include "quant/check.h"
#include "quant/round_rows.h"
#include "quant_model/layer.h"
#include "quant_model/weight_error.h"

namespace tessera::quant {
namespace {

// Rows that a thread takes at once: whole blocks, or 128 KB of floats in the fours that RowErrors
// sums together.
int64_t rows_at_once(const QuantFormat& format, int64_t k) {
  if (format.codes == CodeFormat::fp8_block) return kBlockSide;
  constexpr int64_t kElements = 32 << 10;
  return std::max<int64_t>(1, kElements / (4 * k)) * 4;
}

}  // namespace

RoundedWeight round_stored(const model::WeightSource& source, const model::TensorSpec& spec,
                           const QuantFormat& format) {
  const int64_t n = spec.num_rows, k = spec.num_cols;
  const int64_t step = std::min(n, rows_at_once(format, k));
  RoundedWeight made{.weight = empty_rows(format, n, k)};
  RowErrors errors(n);
  parallel_shares((n + step - 1) / step, 1, [&](Share& share) {
    const Tensor w(DType::f32, {step, k}), values(DType::f32, {step, k});
    while (share.next()) {
      const int64_t first = share.begin() * step, count = std::min(step, n - first);
      const TensorView rows = w.view().slice(0, 0, count);
      source.read(spec, first, 0, rows);
      const int64_t bad = model::find_not_finite(rows);
      if (bad >= 0) expect_finite(spec, first * k + bad);
      auto* stood_for = values.view().as<float>();
      round_rows(rows, format, first, made.weight, stood_for);
      errors.set(first, count, k, rows.as<float>(), stood_for);
    }
  });
  made.error = errors.relative();
  return made;
}

}  // namespace tessera::quant
