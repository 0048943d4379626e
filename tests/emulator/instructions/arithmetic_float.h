// Floating-point instructions whose names integers have too.
// SPDX-License-Identifier: MIT
#pragma once

#include "tests/emulator/instructions/families.h"

namespace tessera::emulator {

// An instruction whose name integers and floating-point numbers share, for the latter.
void bind_float(Instruction& instruction, const Statement& statement, KernelBuilder& builder);

}  // namespace tessera::emulator
