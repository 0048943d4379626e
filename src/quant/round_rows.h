// Rows of a weight rounded to nearest, on the calling thread alone.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "tessera/quant/quantized_weight.h"

namespace tessera::quant {

// Rounds w, f32 [rows, k], and stores its codes and scales as rows [first, first + rows) of `to`,
// which empty_rows made. `values`, f32 [rows, k], receives the values that the codes stand for. The
// bits are those of quantize_rtn. With scales for blocks, `first` must begin a block.
void round_rows(const TensorView& w, const QuantFormat& format, int64_t first,
                const QuantizedWeight& to, float* values);

// The same for int4 and int8 alone; `values` may be null. The bits are those of two calls of
// quantize (ops/quantize.h): the first finds the scales, the second rounds with these scales after
// they were rounded to the type they are stored in.
void round_integer_rows(const TensorView& w, const QuantFormat& format, int64_t first,
                        const QuantizedWeight& to, float* values);

}  // namespace tessera::quant
