// Zero points in the types of the tiles, and the search for values that are not finite.
// SPDX-License-Identifier: MIT
#include "cpu/gemm_operands.h"

#include <algorithm>

#include "cpu/gemm_kernel.h"
#include "cpu/scratch.h"

namespace tessera::cpu {
namespace {

thread_local Scratch float_scratch, code_scratch;

// Whether a row of 16-bit floats has no exponent of ones. No early return, so that the loop
// vectorises; it does for the largest of signed words, whatever the instruction set.
bool is_finite_row(const uint16_t* bits, int64_t count, uint16_t exponent) {
  int16_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    largest = std::max(largest, static_cast<int16_t>(bits[i] & exponent));
  }
  return largest != exponent;
}

}  // namespace

std::optional<const float*> float_zero_points(const Weight& b) {
  if (!b.zero_point) return nullptr;
  const int64_t count = b.zero_point->num_elements();
  float* zeros = float_scratch.take(count);
  if (b.zero_point->dtype == DType::u8) {
    std::copy_n(b.zero_point->as<uint8_t>(), count, zeros);
    return zeros;
  }
  const auto* from = b.zero_point->as<int32_t>();
  bool fits = true;  // no early return, so that the loop vectorises
  for (int64_t i = 0; i < count; ++i) {
    fits &= from[i] >= -kGemmI4MostZero && from[i] <= kGemmI4MostZero;
    zeros[i] = static_cast<float>(from[i]);
  }
  if (!fits) return std::nullopt;
  return zeros;
}

std::optional<const uint8_t*> zero_codes(const Weight& b) {
  constexpr int32_t kMost = 15;
  if (!b.zero_point) return nullptr;
  const int64_t count = b.zero_point->num_elements();
  if (b.zero_point->dtype == DType::u8) {
    const auto* bytes = b.zero_point->as<uint8_t>();
    uint8_t all = 0;
    for (int64_t i = 0; i < count; ++i) all = static_cast<uint8_t>(all | bytes[i]);
    return all <= kMost ? std::optional(bytes) : std::nullopt;
  }
  auto* codes = reinterpret_cast<uint8_t*>(code_scratch.take((count + 3) / 4));
  const auto* from = b.zero_point->as<int32_t>();
  int32_t all = 0;
  for (int64_t i = 0; i < count; ++i) {
    all |= from[i];
    codes[i] = static_cast<uint8_t>(from[i]);
  }
  if (all < 0 || all > kMost) return std::nullopt;
  return codes;
}

RowRun finite_run(const TensorView& a, int64_t begin) {
  const uint16_t exponent = a.dtype == DType::bf16 ? 0x7f80 : 0x7c00;
  const auto is_finite = [&](int64_t row) {
    return is_finite_row(a.as<uint16_t>() + row * a.stride(0), a.size(1), exponent);
  };
  const bool first = is_finite(begin);
  int64_t end = begin + 1;
  while (end < a.size(0) && is_finite(end) == first) ++end;
  return {end, first};
}

}  // namespace tessera::cpu
