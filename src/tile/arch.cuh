// What differs between the two kernel libraries, as overloads on their tags.
// SPDX-License-Identifier: MIT
#pragma once

#include "core/library.h"

namespace tessera::tile {

// Programmatic dependent launch: a kernel of the sm90 library may start while the one before it on
// the stream still runs. wait_for_previous returns when that kernel has finished and its writes are
// visible; every thread calls it before it touches memory that another kernel may write or read,
// prefetches excepted. release_next lets the next kernel start once all blocks of this one have
// called it; that kernel then waits in the same way, for this one to finish. A kernel that is short
// or leaves room on the SMs calls it first of all: the next one then sets itself up, and loads its
// weights, while this one still waits.
__device__ inline void wait_for_previous(Portable) {}
__device__ inline void release_next(Portable) {}

// PTX: griddepcontrol.
__device__ inline void wait_for_previous(Sm90) {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}
__device__ inline void release_next(Sm90) { asm volatile("griddepcontrol.launch_dependents;"); }

}  // namespace tessera::tile
