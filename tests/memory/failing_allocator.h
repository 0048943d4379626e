// Allocations that fail on demand: operator new, which failing_allocator.cpp replaces, and
// aligned_alloc, which tensors use.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace tessera::testing {

// From now on the `countdown`-th allocation of this process, on any thread, fails, once.
void fail_allocation(int64_t countdown);
// No more failures; whether one has happened since.
bool stop_failing();

// Allocations that have not been freed.
int64_t num_live_allocations();

}  // namespace tessera::testing
