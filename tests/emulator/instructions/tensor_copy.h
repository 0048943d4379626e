// Copies of boxes by a tensor map (TMA).
// SPDX-License-Identifier: MIT
#pragma once

#include "tests/emulator/instructions/families.h"

namespace tessera::emulator {

// cp.async.bulk.tensor and cp.reduce.async.bulk.tensor.
void bind_tensor_copy(Instruction& instruction, const Statement& statement, KernelBuilder& builder);

}  // namespace tessera::emulator
