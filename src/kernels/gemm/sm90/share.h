// What the two blocks of a cluster have in common.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace tessera::kernels {

// Which operand both blocks of a cluster need: each loads half of it for both.
enum class Share : uint8_t { none, a, b };

}  // namespace tessera::kernels
