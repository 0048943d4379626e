// SiLU of a row of floats by vectors.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "cpu/simd_dispatch.h"

namespace tessera::cpu {

// values[i] = values[i] / (1 + exp(-values[i])), each by itself, whatever its place in the row.
SimdBuilds<void(float* values, int64_t count)> silu_row_builds();

}  // namespace tessera::cpu
