// An activation applied to a row of floats in place. Each element is computed by itself, so its
// place in the row does not matter.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "cpu/simd_dispatch.h"
#include "tessera/ops/activation.h"

namespace tessera::cpu {

using ActivateRow = void (*)(float* values, int64_t count);
ActivateRow activate_row(Activation kind);

// SiLU with vectors, for each instruction set.
SimdBuilds<void(float* values, int64_t count)> silu_row_builds();

}  // namespace tessera::cpu
