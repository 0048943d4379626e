// Shared-memory addresses as the instructions take them: 32 bits, in the shared state space.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace tessera::tile::ptx {

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

}  // namespace tessera::tile::ptx
