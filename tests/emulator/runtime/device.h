// The device that the emulator pretends to be.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>

namespace tessera::emulator {

constexpr size_t kDeviceBytes = size_t{8} << 30;

}  // namespace tessera::emulator
