// What the quantisers of one weight refuse, and the tensors they fill.
// SPDX-License-Identifier: MIT
#pragma once

#include <string_view>

#include "core/text.h"
#include "tessera/core/error.h"
#include "tessera/quant/quantized_weight.h"

namespace tessera::quant {

inline void expect_matrix(std::string_view what, const TensorView& w) {
  if (w.rank == 2 && w.dtype == DType::f32 && w.device.is_cpu() && w.stride(1) == 1) return;
  fail(concat(what, " is ", to_string(w),
              "; it must be f32 [n, k] on the cpu, with contiguous rows"));
}

inline void expect_integers(std::string_view what, const QuantFormat& format) {
  if (format.codes == CodeFormat::int4 || format.codes == CodeFormat::int8) return;
  fail(concat(what, ": codes are ", name(format.codes),
              "; it makes int4 and int8: use round to nearest for FP8"));
}

// Codes by rows with room for the scales of a format, not filled.
QuantizedWeight empty_rows(const QuantFormat& format, int64_t n, int64_t k);

}  // namespace tessera::quant
