// Kernels that go wrong on purpose.
// SPDX-License-Identifier: MIT
#pragma once

#include "tessera/core/device.h"

namespace tessera::testing {

void launch_wild_write(Stream stream = nullptr);        // where nothing is: wild_write_kernel
void launch_misaligned_write(Stream stream = nullptr);  // misaligned_write_kernel
void launch_trap(Stream stream = nullptr);              // trap_kernel
// Runs so long, whatever the host does: spin_kernel.
void launch_spin(double seconds, Stream stream = nullptr);

}  // namespace tessera::testing
