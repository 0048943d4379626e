// Where nvcc leaves the PTX of a source file in the host's program.
// SPDX-License-Identifier: MIT
#pragma once

#include <string_view>

namespace tessera::emulator {

// The PTX in what nvcc's start-up code registers. Throws std::runtime_error if there is none, or if
// it is compressed.
std::string_view find_ptx(const void* wrapper);

}  // namespace tessera::emulator
