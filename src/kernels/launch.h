// The one way a kernel is launched: checked, and named when it fails.
// SPDX-License-Identifier: MIT
#pragma once

#include <cuda_runtime_api.h>

#include "core/library.h"
#include "tessera/core/context.h"

namespace tessera::kernels {

struct LaunchShape {
  dim3 grid;
  dim3 block;
  size_t shared_bytes = 0;
  unsigned cluster = 1;
  bool overlaps_previous = false;  // programmatic dependent launch: the kernel itself must wait
};

// Throws, naming the kernel and the shape. Not inline, so that .cu files do not compile formatting.
void launch_raw(const void* kernel, const LaunchShape& shape, void** params, const Context& ctx);

template <class Params>
void launch(void (*kernel)(Params), const LaunchShape& shape, const Params& params,
            const Context& ctx) {
  void* pointers[] = {const_cast<void*>(static_cast<const void*>(&params))};
  launch_raw(reinterpret_cast<const void*>(kernel), shape, pointers, ctx);
}

// Every kernel of the sm90 library waits before it touches memory, so it may always overlap.
template <class Arch>
inline constexpr bool kOverlaps = Arch::library == Library::sm90;

}  // namespace tessera::kernels
