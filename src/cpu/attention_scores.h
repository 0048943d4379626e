// From a product of a query and a key to its score, in double.
// SPDX-License-Identifier: MIT
#pragma once

#include <cmath>
#include <cstdint>

#include "tessera/core/tensor.h"

namespace tessera::cpu {

// An optional f32 tensor with a value per head.
inline double per_head(const TensorView& values, int64_t head, double otherwise) {
  return values.data == nullptr ? otherwise : static_cast<double>(values.as<float>()[head]);
}

// scale * product, then softcap, then ALiBi, each if the call has it.
inline double score_of(double product, double scale, float softcap, double slope,
                       int64_t distance) {
  double score = scale * product;
  const double cap = static_cast<double>(softcap);
  if (cap != 0.0) score = cap * std::tanh(score / cap);
  return slope == 0.0 ? score : score - slope * static_cast<double>(distance);
}

}  // namespace tessera::cpu
