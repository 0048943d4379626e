// TESSERA_DEVICE_ASSERT: a check inside a kernel, compiled only if TESSERA_DEVICE_ASSERTS is set.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdio>

namespace tessera::tile {

// Names the place and the thread, then stops the grid with an error the host will see.
__device__ __noinline__ inline void fail_device_assert(const char* what, const char* file,
                                                       int line) {
  printf("%s:%d: block (%d, %d, %d), thread %d: %s does not hold\n", file, line,
         static_cast<int>(blockIdx.x), static_cast<int>(blockIdx.y), static_cast<int>(blockIdx.z),
         static_cast<int>(threadIdx.x), what);
  __trap();
}

}  // namespace tessera::tile

#ifdef TESSERA_DEVICE_ASSERTS
#define TESSERA_DEVICE_ASSERT(ok) \
  ((ok) ? void() : ::tessera::tile::fail_device_assert(#ok, __FILE__, __LINE__))
#else
// The condition is still compiled, so that it stays valid, but never evaluated.
#define TESSERA_DEVICE_ASSERT(ok) static_cast<void>(sizeof((ok) ? 1 : 0))
#endif
