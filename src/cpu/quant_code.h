// One float to one code of a quantised type, and the scale a range of values asks for. Integer
// codes are computed as floats that hold integers, so that the loops around them vectorise.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "tessera/core/convert.h"
#include "tessera/core/dtype.h"
#include "tessera/core/tensor.h"

namespace tessera::cpu {

inline float clamp(float value, float limit) {
  const float below = value > limit ? limit : value;
  return below < -limit ? -limit : below;
}

// `value` rounded to the nearest integer in [-limit, limit], ties to even; NaN gives 0. Adding
// 1.5 * 2^23 leaves no bits for a fraction, so the addition rounds; limit <= 2^22.
inline float symmetric_code(float value, float limit) {
  const float number = value == value ? value : 0.0f;
  return (clamp(number, limit) + 0x1.8p23f) - 0x1.8p23f;
}

// round(value) + zero_point in [0, highest]; NaN gives the zero point. In double, where the sum is
// exact whatever the zero point.
inline float shifted_code(float value, int32_t zero_point, int highest) {
  const float number = value == value ? value : 0.0f;
  const double rounded = (double{clamp(number, 0x1p40f)} + 0x1.8p52) - 0x1.8p52;
  const double code = rounded + static_cast<double>(zero_point);
  const double top = static_cast<double>(highest);
  return static_cast<float>(code < 0.0 ? 0.0 : (code > top ? top : code));
}

// Infinity becomes NaN, and nothing else changes. FP8 conversions saturate, so without this an
// infinity would come out as an ordinary number.
inline float nan_if_infinite(float value) { return value + value * 0.0f; }

// The symmetric code of a type that fills whole bytes. FP8 saturates finite values; what is not
// finite becomes NaN.
template <class T>
T byte_code(float value) {
  return from_float<T>(nan_if_infinite(value));
}
template <>
inline int8_t byte_code<int8_t>(float value) {
  return static_cast<int8_t>(symmetric_code(value, quant_max(DType::i8)));
}

// A scale that would be 0 is 1, so that codes of zeros are zeros. A width that is not finite gives
// NaN, so that everything dequantised with the scale is NaN.
inline float scale_for(float width, float num_steps) {
  const float scale = nan_if_infinite(width / num_steps);
  return scale == 0.0f ? 1.0f : scale;
}

// A nibble as a number: two's complement without a zero point, unsigned with one.
float nibble_value(unsigned bits, bool is_signed);
// Codes [offset, offset + count) of a quantised tensor as floats; i4 has an even offset and count.
void load_codes(const TensorView& x, int64_t offset, int64_t count, bool is_signed, float* codes);
// Indices of a table, as load_codes gives codes of i4 without a sign, to its values.
void look_up_indices(const float* table, int64_t count, float* indices);

}  // namespace tessera::cpu
