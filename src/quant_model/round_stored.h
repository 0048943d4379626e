// A tensor of a checkpoint rounded to nearest without ever being in memory as floats.
// SPDX-License-Identifier: MIT
#pragma once

#include "model/weight_source.h"
#include "tessera/quant/quantized_weight.h"

namespace tessera::quant {

struct RoundedWeight {
  QuantizedWeight weight;
  double error = 0;  // |w - value| / |w|, Euclidean
};

// What quantize_rtn makes of the tensor. Threads read, check, round and compare a few rows at a
// time, while these are in their caches. Refuses values that are not finite.
RoundedWeight round_stored(const model::WeightSource& source, const model::TensorSpec& spec,
                           const QuantFormat& format);

}  // namespace tessera::quant
