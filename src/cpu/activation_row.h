// An activation applied to a row of floats in place.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "tessera/ops/activation.h"

namespace tessera::cpu {

// values[i] = f(values[i]), each by itself, whatever its place in the row.
using ActivateRow = void (*)(float* values, int64_t count);
ActivateRow activate_row(Activation kind);

}  // namespace tessera::cpu
