// Rows of a weight rounded to nearest, on the calling thread alone.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "tessera/quant/quantized_weight.h"

namespace tessera::quant {

// Codes and scales of w, f32 [rows, k], become rows [first, first + rows) of `to`, which empty_rows
// made; `values`, f32 [rows, k], becomes what they stand for. The bits are those of quantize_rtn.
// Blocks begin at `first`.
void round_rows(const TensorView& w, const QuantFormat& format, int64_t first,
                const QuantizedWeight& to, float* values);

// The same for int4 and int8; `values` may be null. The bits are those of quantize of
// ops/quantize.h, once with scales of its own and once more with these rounded to the type they are
// stored in.
void round_integer_rows(const TensorView& w, const QuantFormat& format, int64_t first,
                        const QuantizedWeight& to, float* values);

}  // namespace tessera::quant
