// Philox 4x32-10: random numbers as a function of a key and a counter, with no state.
// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>

namespace tessera::engine {

// After Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011): ten
// rounds of multiplications on four words. Passes the usual batteries of tests; not for secrets.
std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

}  // namespace tessera::engine
