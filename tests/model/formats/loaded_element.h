// An element of a loaded weight, by plain loops that share nothing with the products.
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>

#include "core/element.h"
#include "model/weights.h"
#include "tessera/core/convert.h"

namespace tessera::testing {

// Element (row, col) of a loaded weight; columns are those of the inputs.
inline float element(const model::LinearWeight& weight, int64_t row, int64_t col) {
  int64_t at = col;
  if (weight.order.rank > 0) {
    const auto* order = weight.order.as<int32_t>();
    at = std::find(order, order + weight.order.size(0), col) - order;
  }
  const int64_t index = row * weight.values.size(1) + at;
  const bool has_zero = weight.zero_point.rank > 0;
  float code = 0;
  switch (weight.values.dtype) {
    case DType::f32: return weight.values.as<float>()[index];
    case DType::i4: {
      const int8_t nibble = read_element<I4x2>(weight.values.data, index);
      code = static_cast<float>(has_zero ? nibble & 15 : nibble);
      if (weight.table.rank > 0) code = weight.table.as<float>()[nibble & 15];
      break;
    }
    case DType::i8: code = static_cast<float>(weight.values.as<int8_t>()[index]); break;
    case DType::u8: code = static_cast<float>(weight.values.as<uint8_t>()[index]); break;
    default: code = to_float(weight.values.as<E4m3>()[index]); break;
  }
  const int64_t groups = weight.scale.rank == 1 ? 1 : weight.scale.size(1);
  const int64_t g = weight.group > 0 ? at / weight.group : 0;
  const int64_t scale = row / weight.rows_per_scale * groups + g;
  const float zero = has_zero ? static_cast<float>(weight.zero_point.as<uint8_t>()[scale]) : 0.0f;
  return (code - zero) * weight.scale.as<float>()[scale];
}

}  // namespace tessera::testing
