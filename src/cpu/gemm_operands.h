// What the tiles of a 4-bit weight ask about their operands: zero points, and finite rows.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>

#include "tessera/core/tensor.h"
#include "tessera/ops/weight.h"

namespace tessera::cpu {

// Zero points of an i4 weight as floats, null where it has none; nothing if one is beyond
// kGemmI4MostZero. They last until the next call on this thread.
std::optional<const float*> float_zero_points(const Weight& b);
// The same as bytes; nothing if one is not a code of 4 bits.
std::optional<const uint8_t*> zero_codes(const Weight& b);

// The rows from `begin` on that are all finite, or all not.
struct RowRun {
  int64_t end;
  bool is_finite;
};
RowRun finite_run(const TensorView& a, int64_t begin);  // f16 or bf16 [m, k]

}  // namespace tessera::cpu
